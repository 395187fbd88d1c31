"""Which build of jccl this is, what it was made with, and what it finds on the machine.

Imports no JAX, so that `jccl --version` answers at once, and serves without the native
module, too. Any thread.
"""

from __future__ import annotations

import importlib.metadata
import platform

import jccl
from jccl import _native

# Name: how `jccl --version` shows it. {} is the fact.
_LINES = {
    "commit": "commit        {}",
    "wire": "wire version  {}",
    "oldest_wire": "speaks from   {}",
    "journals": "journals      {}",
    "encryption": "encryption    {}",
    "compiler": "compiler      {}",
    "glibc": "glibc         {} or newer",
    "ffi_api": "XLA FFI       {} or newer",
    "openssl": "OpenSSL       {}",
    "sqlite": "SQLite        {}",
    "boost": "Boost         {}",
    "native_module": "native module {}",
    "machine": "machine       {}",
    "python": "Python        {}",
    "jax": "jax           {}",
    "jaxlib": "jaxlib        {}",
}


def build_facts() -> dict[str, str]:
    """What this build of jccl is, with what it was made, and what it finds here.

    The same that `jccl --version` prints, for logs and for reports of bugs. All values
    are text. Where the native module does not load, what only it knows is left out.

    Returns:
      version, commit ("unknown" if it was not built in a checkout), wire and
      oldest_wire (the versions of the wire that it speaks), journals, encryption,
      compiler, glibc and ffi_api (the oldest that serve), openssl, sqlite and boost;
      native_module ("loads", or why it does not), machine, python, jax and jaxlib
      ("missing" where there is none).
    """
    facts = {"version": jccl.__version__}
    try:
        core = _native.core()
    except ImportError as fault:
        facts["native_module"] = f"missing: {fault}"
    else:
        facts |= core.build
        facts["ffi_api"] = ".".join(map(str, core.ffi_api_version))
        facts["native_module"] = "loads"
    facts["machine"] = f"{platform.system()} {platform.machine()}"
    facts["machine"] += f", {' '.join(platform.libc_ver())}"
    facts["python"] = platform.python_version()
    for name in ("jax", "jaxlib"):
        try:
            facts[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            facts[name] = "missing"
    return facts


def as_text() -> str:
    """A line for each fact; the first is the version alone."""
    facts = build_facts()
    lines = [f"jccl {facts['version']}"]
    lines += [
        line.format(facts[name]) for name, line in _LINES.items() if facts.get(name)
    ]
    return "\n".join(lines)
