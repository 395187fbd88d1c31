# The commands of this repository. `make demo` and `make test` set up all they need by themselves
# (see .ci/setup); `make check` is what CI runs after the tests; `make long-…` takes long.
# Plain commands behind them, for those who prefer to type: CONTRIBUTING.md.
.PHONY: demo metagenome test build-programs tests check ci ci-processes check-machines check-seeds check-sanitized check-processes \
  docs lint types tidy clean help bench coverage long-bench \
  device-check long-kills long-anchors long-exact long-standby long-page long-slurm long-launchers long-upgrade long-static long-stress long-failpoints long-checkpoints long-seeds long-mutants long-rare long-model \
  attack long-jax-versions long-sites long-examples long-packages long-loggers long-python long-plain long-tsan long-asan long-aarch64 long-wan long-fuzz long-hostile long-planted long-power-cuts long-mutation
.DEFAULT_GOAL := help

PY := .venv/bin/python
STAGE := .ci/stage
BENCHMARKS := all_reduce codecs latency wide_area overlap utilization scale master_load

help:
	@sed -n 's/^## //p' Makefile

## make demo   master and 3 peers train a small language model, through kills (1 to 3 minutes, once built)
demo: .venv/.ready
	$(PY) examples/demo.py

# Unpacked beside the build, not installed: that needs no root.
READS := build/reads
$(READS)/.ready:
	mkdir -p $(READS)
	cd $(READS) && apt-get download vsearch-examples gasic-examples microbiomeutil-data bowtie2-examples
	cd $(READS) && for package in *.deb; do dpkg -x $$package . || exit 1; done
	touch $@

## make metagenome  three laboratories train one model of DNA; one is killed, and a lazy one found (17 minutes on two busy cores; reads of Debian's packages)
metagenome: .venv/.ready $(READS)/.ready
	$(PY) examples/metagenome.py --reads $(READS)

## make test   every fast test, C++ (under ASan and UBSan) and Python
test: build-programs
	$(STAGE) "build with sanitizers" .ci/sanitize build asan
	$(MAKE) --no-print-directory tests
	$(STAGE) "ASan and UBSan" .ci/sanitize asan

# C++ is tested under sanitizers, and once: what was never found in one build alone is not sought in
# two. Optimised too is what optimisation can break, the kernels, and what ASan's build leaves out, the
# simulator and the attackers. `.ci/build-tests` without words builds them all, as `make long-plain` does.
build-programs: .venv/.ready-test
	$(STAGE) "build programs" .ci/build-tests 'codec|collective|snapshot|sim|attack'

tests: .venv/.ready-test
	$(STAGE) "optimised C++ tests" .ci/ctest --test-dir build/ext -j3
	$(STAGE) "Python tests" sh -c '$(PY) -m pytest -q -n 3 --dist loadfile $${JCCL_JUNIT:+"--junitxml=$$JCCL_JUNIT/pytest.xml"} tests'

# Lanes side by side: real processes wait for much of their time, and are to be in time. What only
# computes has what they leave.
LANES := --no-print-directory -j2 --output-sync=line
IDLE := nice -n 19

## make check  sanitizers, simulated seeds, kills of real processes, short demo, style (CI)
check: .venv/.ready-test
	$(MAKE) $(LANES) check-machines check-processes

# All of the above, as CI runs it.
ci: build-programs
	$(MAKE) $(LANES) check-machines ci-processes

ci-processes: tests
	$(MAKE) --no-print-directory check-processes

# Sanitized tests last, when Python's have ended: they are to be in time too, if less so.
check-machines: .venv/.ready-test
	$(STAGE) "style" $(IDLE) $(MAKE) --no-print-directory lint types
	$(STAGE) "build with sanitizers" $(IDLE) .ci/sanitize build asan
	$(STAGE) "planted bugs of the simulator" $(IDLE) build/ext/cpp/jccl-sim --mutants --from cpp/sim/mutants.txt --seeds 20000 --jobs 2
	$(STAGE) "defences against a hostile member" $(IDLE) build/ext/cpp/jccl-sim --mutants --hostile --from cpp/sim/hostile_mutants.txt --seeds 20000 --jobs 2
	$(MAKE) $(LANES) check-seeds check-sanitized

# Fixed seeds find what a change breaks that was whole: all but six of the planted bugs show in the first
# 4,000 (cpp/sim/mutants.txt), and all but three of a hostile member. Seeds that others cannot stand for are
# listed: those of planted bugs, and those that meet the rare pairs of phase and input (long-rare). Fresh
# ones find what was never whole, and every commit brings others. More is a matter of idle hours: 40,000
# fixed, 20,000 fresh and 20,000 hostile ones took 900 of CI's 3,000 processor seconds (long-seeds). With
# those that are listed 5,000 meet every pair that 12,000 do.
FIXED_SEEDS := 5000
# The next 20,000 of a hostile member's: long-seeds.
HOSTILE_SEEDS := 6000

check-seeds: .venv/.ready-test
	$(STAGE) "simulated seeds with a hostile member" $(IDLE) build/ext/cpp/jccl-sim --hostile --seeds $(HOSTILE_SEEDS) --jobs 2
	$(STAGE) "seeds of this commit" $(IDLE) .ci/seeds fresh
	$(STAGE) "simulated seeds" $(IDLE) build/ext/cpp/jccl-sim --seeds $(FIXED_SEEDS) --jobs 2 --require-coverage --rare cpp/sim/rare_seeds.txt --open cpp/sim/open_seeds.txt

# Of the pure strata. Those that seeds see have a stage of their own; tests of the others wait for
# timers, seven minutes in all, and have a command (long-planted), as has the extension.
PLANTED := --no-seeds $(foreach stratum,base wire codec collective snapshot proof exchange,--stratum $(stratum))

check-sanitized: .venv/.ready-test
	$(STAGE) "ASan and UBSan" nice .ci/sanitize asan
	$(STAGE) "planted bugs of pure strata" nice $(PY) -m tests.planted --programs build/asan -j3 $(PLANTED)

check-processes: .venv/.ready-test
	$(STAGE) "short demo" $(PY) examples/demo.py --quick --sync-every 8
	$(STAGE) "kills of real processes" $(PY) -m tests.stress --minutes 0.5 --kills 300
	$(STAGE) "kills with a shared state" $(PY) -m tests.stress --minutes 0.3 --kills 40 --rate 3 --peers 6 --modes f32-in,state
	$(STAGE) "anchors under every codec" $(PY) -m tests.stress --anchors 1000 --peers 4 --rate 5
	$(STAGE) "kills at every failpoint" $(PY) -m tests.stress.failpoints
	$(STAGE) "cuts, lies and pauses" $(PY) -m tests.stress.network
	$(STAGE) "kills in checkpoints" $(PY) -m tests.stress.checkpoints
	$(STAGE) "kills in site checkpoints" $(PY) -m tests.stress.site_checkpoints --kills 8
	$(STAGE) "crowds" $(PY) -m tests.stress.crowds
	$(STAGE) "wide-area lab" $(PY) -m benchmarks.wan.selftest --functional

## make bench  every benchmark, a few minutes each, and a page of plots (docs/benchmarks.md)
bench: .venv/.ready-test
	for name in $(BENCHMARKS); do $(PY) -m benchmarks.$$name || exit 1; done
	$(PY) -m benchmarks.report

## make docs   the documentation as a site, in build/site
docs: .venv/.ready-test
	$(PY) docs/site/build.py

lint: .venv/.ready-test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	git ls-files ':!tests/data' ':!.ci/requirements-*.txt' | xargs .venv/bin/codespell
	.venv/bin/proselint check --config .ci/proselint.json README.md SECURITY.md docs/*.md
	git ls-files 'cpp/*.h' 'cpp/*.cc' 'cpp/*.c' 'xla_ext/*.h' 'xla_ext/*.cc' 'benchmarks/*.h' 'benchmarks/*.cc' | xargs .venv/bin/clang-format --dry-run --Werror

types: .venv/.ready-test
	.venv/bin/mypy

## make long-kills   1,000 kills of real processes, every result compared with an oracle
long-kills: .venv/.ready-test
	$(PY) -m tests.stress --kills 1000

## make long-anchors  10,000 outer steps under each codec with kills, by each plan; equal on all peers
long-anchors: .venv/.ready-test
	for plan in direct exchange ring; do $(PY) -m tests.stress --anchors 10000 --peers 4 --rate 5 --plan $$plan || exit 1; done

## make long-stress  kills of real processes for MINUTES (default 480), about ten a second
long-stress: .venv/.ready-test
	$(PY) -m tests.stress --minutes $(or $(MINUTES),480)

## make long-failpoints  kills and stops at every failpoint in more rounds, worlds and codecs; more cuts
long-failpoints: .venv/.ready-test
	$(PY) -m tests.stress.failpoints --full
	$(PY) -m tests.stress.network --full

## make long-checkpoints  10,000 kills of a process that saves and restores checkpoints
long-checkpoints: .venv/.ready-test
	$(PY) -m tests.stress.checkpoints --kills 10000
	$(PY) -m tests.stress.site_checkpoints --kills 1000

## make long-standby  200 faults of masters and of their etcd (apt-get install etcd-server)
long-standby: .venv/.ready-test
	$(PY) -m tests.standby --faults 200

## make long-page     the page in Chromium, its metrics in Prometheus (installs both: Debian, root)
long-page: .venv/.ready-test
	command -v chromium >/dev/null && command -v prometheus >/dev/null || .ci/setup test chromium prometheus
	JCCL_LONG=1 $(PY) -m pytest tests/page

# Not in CI: its packages are daemons that nobody wants started on their machine, and it takes minutes
# of a budget of 25. Where they are installed, `make test` runs all but the loss of the first node.
## make long-slurm    a run as a Slurm job: nodes die, the job is requeued (installs slurm-wlm: Debian, root)
long-slurm: .venv/.ready-test
	command -v slurmctld >/dev/null || .ci/setup test slurm-wlm
	JCCL_LONG=1 $(PY) -m pytest tests/slurm

# Not in CI: Ray alone is 70 MB, and Slurm as above.
## make long-launchers  tests of Ray, Kubernetes, SkyPilot and Slurm (installs the first two's packages, and slurm-wlm)
long-launchers: .venv/.ready-test
	.ci/launchers

# Not in CI: it builds jccl twice more, of commits that a shallow clone has not.
## make long-upgrade  builds of two earlier commits, with this wire version and the last, beside this one
long-upgrade: .venv/.ready-test
	.ci/older
	$(PY) -m pytest -q -rs tests/upgrade

## make device-check  what a machine with a GPU shows: tests, a run of device and host peers, benchmarks; a log
device-check: .venv/.ready-test
	.ci/device-check

## make long-static   jccl-master as one file, built and run as in an image from scratch (two minutes; root)
long-static: .venv/.ready-test
	.ci/static

## make long-seeds   COUNT more simulated seeds (default 100,000), from where the ledger of ten million ends; 20,000 hostile
long-seeds: .venv/.ready-test
	.ci/seeds more $(or $(COUNT),100000)
	build/ext/cpp/jccl-sim --hostile --first-seed $$(($(HOSTILE_SEEDS) + 1)) --seeds 20000 --jobs 2

## make long-mutants  finds every planted bug anew and writes the table of seeds that CI begins with
long-mutants: .venv/.ready-test
	build/ext/cpp/jccl-sim --mutants --seeds 100000 --jobs 2 --rewrite cpp/sim/mutants.txt

## make long-rare     finds the seeds that meet what CI's fixed ones do not, and writes their list (4 minutes)
long-rare: .venv/.ready-test
	build/ext/cpp/jccl-sim --seeds $(FIXED_SEEDS) --jobs 2 --require-coverage --rewrite cpp/sim/rare_seeds.txt

## make long-planted every planted bug with its test, those of the extension too, in a build of their own
long-planted: .venv/.ready-test
	.ci/build-planted
	$(PY) -m tests.planted

## make long-power-cuts 100,000 cuts of the power under the journal in SQLite
long-power-cuts: .venv/.ready-test
	.ci/build-tests
	JCCL_CUTS=100000 build/ext/cpp/power_cut_test --gtest_filter='*every*'

## make long-mutation N more small changes to the Python package (default 300), each with its module's tests
long-mutation: .venv/.ready-test
	.ci/mutation-py $(or $(N),300)

## make long-model   all interleavings of small worlds, each scope up to STATES (default 40 million), and of a link
STATES ?= 40000000
long-model: .venv/.ready-test
	build/ext/cpp/exchange_test --gtest_filter='FlightSearchTest.*' --gtest_also_run_disabled_tests
	for scope in "--rounds 1 --faults 1 --ticks 1" "--rounds 1 --faults 2" "--rounds 2 --faults 2" \
	  "--rounds 1 --faults 2 --state" "--rounds 1 --faults 1 --peers 3" \
	  "--rounds 2 --faults 1 --peers 3" "--rounds 1 --faults 3" "--rounds 1 --faults 2 --peers 3" \
	  "--rounds 2 --faults 3" "--rounds 2 --faults 2 --peers 3"; do \
	  echo "$$scope"; \
	  build/ext/cpp/jccl-model --begun --coarse --ticks 0 $$scope --states $(STATES) --jobs 2 --quiet; \
	  code=$$?; [ $$code = 0 ] || [ $$code = 3 ] || exit 1; done  # 3: stopped, and says so

## make long-wan     self-test of the lab for wide-area links, with its rates and delays (root, iperf3)
long-wan: .venv/.ready-test
	command -v iperf3 >/dev/null || .ci/setup test iperf3
	$(PY) -m benchmarks.wan.selftest

## make attack  one hostile member against live rounds, a row for each lie, plain, by tokens, and against two; speed counts (2 hours)
attack: .venv/.ready-test
	code=0; for how in "" --token "--honest 2"; do $(PY) -m tests.attack --strict --seconds 40 $$how || code=1; done; exit $$code

## make long-sites  sites of several processes: two of two, two in one JAX world, deaths with rounds open
long-sites: .venv/.ready-test
	JCCL_LONG=1 $(PY) -m pytest tests/python/test_mesh_sites.py

## make long-examples  the examples that people keep, as their docstrings run them
long-examples: .venv/.ready-test
	JCCL_LONG=1 $(PY) -m pytest tests/python/test_kept_examples.py

# Not locked, and 700 MB with clu's TensorFlow: into a folder of their own, LOGGERS, which comes last on the
# path. .venv/bin/uv pip install --target FOLDER opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
# tensorboard clu tensorflow-cpu
## make long-loggers LOGGERS=FOLDER  OpenTelemetry, clu and TensorBoard, installed there, read what jccl.metrics writes
long-loggers: .venv/.ready-test
	$(PY) -c "import sys; sys.path.append('$(LOGGERS)'); import pytest; sys.exit(pytest.main(['-q', 'tests/python/test_loggers.py']))"

# 30 s of a processor for what differs in its numbers alone.
## make long-python  the cases of Python tests that CI leaves out: 750 more runs of the data plan, 2,000 leaves, a kill
long-python: .venv/.ready-test
	JCCL_LONG=1 $(PY) -m pytest tests/python/test_data_pool.py tests/python/test_mesh.py tests/python/test_metagenome.py

## make long-audits  audits of training: what CI runs, one case more, and what claims cost a round of 64 MiB
long-audits: .venv/.ready-test
	JCCL_LONG=1 $(PY) -m pytest tests/python/test_audits.py
	$(PY) -m benchmarks.training_audits

## make long-exact  the same DiLoCo run on loopback and over an emulated wide area, bit for bit (root)
long-exact: .venv/.ready-test
	$(PY) -m tests.python.exact_wide

## make long-plain   every C++ test without sanitizers, as the product is compiled
long-plain: .venv/.ready-test
	.ci/build-tests
	.venv/bin/ctest --test-dir build/ext --output-on-failure -j2

## make long-tsan    the C++ tests under ThreadSanitizer, then MINUTES (default 10) of stress
long-tsan: .venv/.ready-test
	.ci/sanitize tsan $(or $(MINUTES),10)

## make long-asan    the same under AddressSanitizer, UBSan and LeakSanitizer
long-asan: .venv/.ready-test
	.ci/sanitize asan $(or $(MINUTES),10)

## make long-aarch64 the transport cross-compiled; what computes, tested under qemu-user (Debian, root)
long-aarch64: .venv/.ready-test
	.ci/aarch64

## make long-fuzz    every fuzz target, plain and under ASan and UBSan, MINUTES in all (default 30; clang 14)
long-fuzz: .venv/.ready-test
	.ci/fuzz $(or $(MINUTES),30)

## make long-hostile COUNT more numbered inputs of the target `hostile` (default 100,000), then some sanitized
long-hostile: .venv/.ready-test
	.ci/hostile $(or $(COUNT),100000)

## make long-jax-versions  one wheel under the oldest, the newest and other JAX releases (package index)
long-jax-versions: .venv/.ready-test
	.ci/jax-versions --suite

## make long-packages  sdist, a wheel from it, a manylinux wheel; each serves in an empty environment (index, Debian)
long-packages: .venv/.ready-test
	$(PY) -m tests.packages

## make coverage     lines that tests and stored fuzz inputs reach in wire and journal, at least 95 %
coverage: .venv/.ready-test
	.ci/coverage

## make long-bench   every cell of the benchmarks; goes on where it was
long-bench: .venv/.ready-test
	for name in $(BENCHMARKS); do $(PY) -m benchmarks.$$name --full || exit 1; done
	$(PY) -m benchmarks.report

clean:
	rm -rf build dist .venv/.ready .venv/.ready-test

.venv/.ready: pyproject.toml .ci/setup .ci/requirements-run.txt
	.ci/setup run

.venv/.ready-test: pyproject.toml .ci/setup .ci/requirements-test.txt
	.ci/setup test
