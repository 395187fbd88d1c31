"""What real loggers make of our numbers: OpenTelemetry, clu, TensorBoard's own reader.

`make long-loggers` says what it needs: CI has none of these packages.
"""

import http.server
import threading

import numpy as np
import pytest

from jccl import metrics
from jccl.testing import Cluster

NO_TELEMETRY = "no OpenTelemetry: make long-loggers"
NO_TENSORBOARD = "no TensorBoard: make long-loggers"
READER = "tensorboard.backend.event_processing.event_accumulator"
NO_CLU = "no clu: make long-loggers"


def needed(name, why):
    return pytest.importorskip(name, reason=why, exc_type=ImportError)


@pytest.fixture(scope="module")
def cluster():
    with Cluster(2) as cluster:
        yield cluster


def rounds(cluster, n=1):
    for _ in range(n):
        cluster.run(lambda comm, i: comm.all_reduce(np.ones(999, np.float32)))


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes OTLP over HTTP, and keeps the requests."""

    got = []

    def do_POST(self):
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = metrics_service_pb2.ExportMetricsServiceRequest.FromString(body)
        self.got.append(request)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Collector.got.clear()
    yield f"http://127.0.0.1:{server.server_port}/v1/metrics"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_collector_gets_the_counters_over_otlp(cluster, collector):
    needed("opentelemetry.sdk.metrics", NO_TELEMETRY)
    needed("opentelemetry.exporter.otlp.proto.http.metric_exporter", NO_TELEMETRY)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
        OTLPMetricExporter,
    )
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    comm = cluster.comms[0]
    exporter = OTLPMetricExporter(endpoint=collector)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = MeterProvider([reader])
    metrics.observe(comm, provider)
    rounds(cluster, 3)
    about = metrics.read(comm)
    assert provider.force_flush()
    (request,) = Collector.got
    (scope,) = request.resource_metrics[0].scope_metrics
    found = {metric.name: metric for metric in scope.metrics}
    assert found.keys() == {
        *("jccl.sent", "jccl.received", "jccl.epoch", "jccl.world"),
        *("jccl.rounds.committed", "jccl.rounds.retried", "jccl.round.duration"),
    }
    (sent,) = found["jccl.sent"].sum.data_points
    assert sent.as_int == about["sent_bytes"] and found["jccl.sent"].sum.is_monotonic
    attributes = {one.key: one.value.string_value for one in sent.attributes}
    assert attributes["jccl.run"] == comm.attributes().run_id
    phases = {
        one.value.string_value: point.as_double
        for point in found["jccl.round.duration"].gauge.data_points
        for one in point.attributes
        if one.key == "phase"
    }
    assert phases.keys() == {"round", "start", "data", "commit", "wait"}
    assert phases["round"] >= phases["data"] > 0
    provider.shutdown()


def test_after_close_nothing_more_is_exported():
    needed("opentelemetry.sdk.metrics", NO_TELEMETRY)
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with Cluster(1) as cluster:
        metrics.observe(cluster.comms[0], provider)
        assert reader.get_metrics_data() is not None
    assert reader.get_metrics_data() is None
    provider.shutdown()


def test_tensorboard_reads_what_was_written(cluster, tmp_path):
    import tensorboardX

    accumulator = needed(READER, NO_TENSORBOARD)
    meter = metrics.Meter(cluster.comms[0])
    with tensorboardX.SummaryWriter(str(tmp_path)) as writer:
        for step in range(3):
            rounds(cluster)
            written = meter.write(step, writer, loss=3.0 - step)
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(written)
    losses = [(e.step, e.value) for e in events.Scalars("loss")]
    assert losses == [(0, 3.0), (1, 2.0), (2, 1.0)]


def test_a_clu_writer_takes_what_was_written(cluster, tmp_path, caplog):
    clu = needed("clu.metric_writers", NO_CLU)
    meter = metrics.Meter(cluster.comms[0])
    writer = clu.create_default_writer(str(tmp_path), asynchronous=False)
    rounds(cluster)
    with caplog.at_level("INFO"):
        meter.write(5, writer, loss=0.25)
    writer.flush()
    writer.close()
    assert "loss=0.25" in caplog.text and "jccl/world=2" in caplog.text
    assert list(tmp_path.glob("events.out.tfevents.*"))
