"""What a network is made of, as text: `[TARGET.]KEY=VALUE`, units, topology files."""

import json
import re
from pathlib import Path

# Key -> kind of value, see parse().
HOST_KEYS = {
    "up": "rate",
    "down": "rate",
    "queue": "float",
    "flow_rate": "rate",
    "flow_queue": "time",
    "flow_mode": "mode",
    "cut": "bool",
}
PATH_KEYS = {
    "delay": "time",
    "jitter": "time",
    "loss": "frac",
    "burst": "float",
    "rate": "rate",
    "cut": "bool",
}
NET_KEYS = {"hosts", "mtu", "gso", "seed", "cc"}  # fixed once a network is up

HOST_DEFAULTS = {
    "up": 0,
    "down": 0,
    "queue": 1,
    "flow_rate": 0,
    "flow_queue": 50e6,
    "flow_mode": "shape",
    "cut": 0,
}
PATH_DEFAULTS = {"delay": 0, "jitter": 0, "loss": 0, "burst": 1, "rate": 0, "cut": 0}
NET_DEFAULTS = {"mtu": 1500, "gso": 1, "seed": 1, "cc": ""}

UNITS = {
    "rate": {"": 1, "k": 1e3, "m": 1e6, "g": 1e9},
    "time": {"us": 1e3, "ms": 1e6, "s": 1e9},
    "frac": {"": 1, "%": 0.01},
    "float": {"": 1},
    "bool": {"": 1},
}


class WanError(Exception):
    """A fault of the lab, in one line."""


def parse(kind, text):
    """'1gbit' -> 1e9 bit/s, '80ms' -> 80000000 ns, '0.1%' -> 0.001, ..."""
    text = str(text).strip().lower()
    if kind == "mode":
        if text not in ("shape", "police"):
            raise WanError(f"not a mode: {text!r} (shape or police)")
        return text
    match = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*([a-z/%]*)", text)
    try:
        number = float(match[1])
        unit = re.sub("(bit|bps|bit/s)$", "", match[2]) if kind == "rate" else match[2]
        value = 0.0 if unit == "" and number == 0 else number * UNITS[kind][unit]
    except (TypeError, ValueError, KeyError):
        raise WanError(f"not a {kind}: {text!r}") from None
    if kind == "frac" and value > 1:
        raise WanError(f"not a fraction: {text!r} (percents need a %)")
    return value


def split_item(text):
    """'h0.rate=1gbit' -> ('h0', 'rate', '1gbit')."""
    match = re.fullmatch(r"(?:([\w:-]+)\.)?([\w.]+)=(.*)", text)
    if not match:
        raise WanError(f"not a setting: {text!r}")
    return match[1] or "", match[2], match[3]


def load(file):
    """Top-level keys are for all hosts and paths, tables for one each."""
    text = Path(file).read_text()
    if str(file).endswith(".json"):
        topology = json.loads(text)
    else:
        import tomllib

        topology = tomllib.loads(text)
    items = [("", k, v) for k, v in topology.items() if not isinstance(v, dict)]
    tables = {t: d for t, d in topology.items() if isinstance(d, dict)}
    return items + [(t, k, v) for t, d in tables.items() for k, v in d.items()]


def host_names(value):
    """3 or "3" -> h0, h1, h2; "us,eu" or a list are names."""
    if str(value).isdigit():
        names = [f"h{i}" for i in range(int(value))]
    else:
        names = value.split(",") if isinstance(value, str) else list(value)
    plain = all(re.fullmatch(r"[A-Za-z]\w*", name) for name in names)
    if not (2 <= len(names) <= 200 and plain and len(set(names)) == len(names)):
        raise WanError(f"bad hosts: {names}")
    return names


class Topology:
    """The settings of hosts and directed paths; changes nothing but itself."""

    def __init__(self, names):
        self.hosts = list(names)
        self.host = {name: dict(HOST_DEFAULTS) for name in names}
        pairs = [(a, b) for a in names for b in names if a != b]
        self.path = {f"{a}:{b}": dict(PATH_DEFAULTS) for a, b in pairs}

    @classmethod
    def restore(cls, state):
        self = object.__new__(cls)
        self.hosts, self.host, self.path = state["hosts"], state["host"], state["path"]
        return self

    def paths_of(self, target):
        """The directed paths that a target means."""
        if target in self.path:
            return [target]
        a, _, b = target.partition("-")
        if f"{a}:{b}" in self.path:
            return [f"{a}:{b}", f"{b}:{a}"]
        found = [p for p in self.path if target in ("", *p.split(":"))]
        if not found:
            raise WanError(f"no host or path {target!r}")
        return found

    def apply(self, target, key, value):
        hosts = [h for h in self.hosts if target in ("", h)]
        host_keys = {**HOST_KEYS, "rate": "rate"}
        if hosts and key in host_keys:
            for h in hosts:
                for k in ("up", "down") if key == "rate" else (key,):
                    self.host[h][k] = parse(host_keys[key], value)
        elif key == "rtt":
            for p in self.paths_of(target):
                self.path[p]["delay"] = parse("time", value) / 2
        elif key in PATH_KEYS:
            for p in self.paths_of(target):
                self.path[p][key] = parse(PATH_KEYS[key], value)
        else:
            raise WanError(f"unknown setting {key!r}")

    def rtt(self, path):
        a, b = path.split(":")
        return self.path[path]["delay"] + self.path[f"{b}:{a}"]["delay"]

    def commands(self):
        """All of it as wanlink reads it."""
        index = {h: i for i, h in enumerate(self.hosts)}
        out = []
        for h, settings in self.host.items():
            s = dict(settings)  # a queue of 1 BDP is one that takes one RTT to drain
            s["queue"] *= max(self.rtt(p) for p in self.paths_of(h))
            s["flow_police"] = int(s.pop("flow_mode") == "police")
            out += [f"host {index[h]} {k} {v}" for k, v in s.items()]
        for p, settings in self.path.items():
            a, b = p.split(":")
            s = {**settings, "queue": self.host[a]["queue"] * self.rtt(p)}
            out += [f"path {index[a]} {index[b]} {k} {v}" for k, v in s.items()]
        return out
