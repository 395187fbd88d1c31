"""What jccl is built from and runs with: for docs/dependencies.md and its test.

Versions are those of the lock files; licences were read in the packages and are
written down here, so that a new one has to be looked at.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = {
    path.stem.removeprefix("requirements-"): path
    for path in sorted((ROOT / ".ci").glob("requirements*.txt"))
}
# Installed in environments of their own, beside what jccl is built from and runs with.
TOOLS = {
    "launchers": ".ci/launchers",
    "moto": ".ci/moto",
    "mutation": ".ci/mutation-py",
}
ROW = re.compile(r"^([a-z0-9._-]+)==(\S+)(?: ; (.*?))? \\$", re.M)

# name: (licence, what for; nothing if another package needs it)
PYTHON = {
    "absl-py": ("Apache-2.0", ""),
    "accessible-pygments": ("BSD-3-Clause", ""),
    "aiofiles": ("Apache-2.0", ""),
    "aiohappyeyeballs": ("PSF-2.0", ""),
    "aiohttp": ("Apache-2.0 AND MIT", ""),
    "aiosignal": ("Apache-2.0", ""),
    "alabaster": ("BSD-3-Clause", ""),
    "anybadge": ("MIT", ""),
    "array-record": ("Apache-2.0", ""),
    "ast-serialize": ("MIT", ""),
    "attrs": ("MIT", ""),
    "babel": ("BSD-3-Clause", ""),
    "beautifulsoup4": ("MIT", ""),
    "blinker": ("MIT", ""),
    "boto3": ("Apache-2.0", ""),
    "botocore": ("Apache-2.0", ""),
    "certifi": ("MPL-2.0", ""),
    "cffi": ("MIT-0", ""),
    "charset-normalizer": ("MIT", ""),
    "clang-format": ("Apache-2.0 WITH LLVM-exception", "format of the C++ sources"),
    "click": ("BSD-3-Clause", "the `jccl` command"),
    "cloudpickle": ("BSD-3-Clause", ""),
    "cmake": ("Apache-2.0 (wheel), BSD-3-Clause (CMake)", "builds the extension"),
    "cmeel": ("BSD-2-Clause", ""),
    "cmeel-boost": ("BSL-1.0", "headers of Boost: Asio, JSON"),
    "codespell": ("GPL-2.0-only", "spelling of all texts"),
    "colorlog": ("MIT", ""),
    "contourpy": ("BSD-3-Clause", ""),
    "cosmic-ray": ("MIT", "small changes to the Python package"),
    "cryptography": ("Apache-2.0 OR BSD-3-Clause", ""),
    "cycler": ("BSD-3-Clause", ""),
    "decorator": ("BSD-2-Clause", ""),
    "docutils": ("BSD-2-Clause AND LicenseRef-Public-Domain", ""),
    "etils": ("Apache-2.0", ""),
    "execnet": ("MIT", ""),
    "exit-codes": ("MIT", ""),
    "filelock": ("MIT", ""),
    "flask": ("BSD-3-Clause", "the server under moto"),
    "flask-cors": ("MIT", "the server under moto"),
    "flatbuffers": ("Apache-2.0", "tests read exported programs"),
    "flax": ("Apache-2.0", "models of `flax.nnx` and of the examples"),
    "fonttools": ("MIT", ""),
    "frozenlist": ("Apache-2.0", ""),
    "fsspec": ("BSD-3-Clause", ""),
    "furo": ("MIT", "the site's theme"),
    "gcovr": ("BSD-3-Clause", "coverage of the C++ tests"),
    "gitdb": ("BSD-3-Clause", ""),
    "gitpython": ("BSD-3-Clause", ""),
    "google-re2": ("BSD-3-Clause", ""),
    "google-re2-stubs": ("MIT", ""),
    "grain": ("Apache-2.0", "tests read data through it"),
    "humanize": ("MIT", ""),
    "hypothesis": ("MPL-2.0", "tests by properties"),
    "idna": ("BSD-3-Clause", ""),
    "imagesize": ("MIT", ""),
    "importlib-resources": ("Apache-2.0", ""),
    "iniconfig": ("MIT", ""),
    "itsdangerous": ("BSD-3-Clause", ""),
    "jax": ("Apache-2.0", "what jccl is for"),
    "jaxlib": ("Apache-2.0", "XLA, and the headers of its FFI"),
    "jinja2": ("BSD-3-Clause", ""),
    "jmespath": ("MIT", ""),
    "jsonschema": ("MIT", ""),
    "jsonschema-specifications": ("MIT", ""),
    "kiwisolver": ("BSD-3-Clause", ""),
    "kubernetes-validate": ("Apache-2.0", "manifests against Kubernetes' schemas"),
    "librt": ("MIT", ""),
    "lxml": ("BSD-3-Clause", ""),
    "markdown-it-py": ("MIT", ""),
    "markupsafe": ("BSD-3-Clause", ""),
    "matplotlib": ("PSF-based (Matplotlib)", "plots of the demo and the benchmarks"),
    "mdit-py-plugins": ("MIT", ""),
    "mdurl": ("MIT", ""),
    "ml-dtypes": ("Apache-2.0", "bfloat16 in NumPy"),
    "moto": ("Apache-2.0", "an S3 for tests of checkpoints"),
    "msgpack": ("Apache-2.0", ""),
    "multidict": ("Apache-2.0", ""),
    "mypy": ("MIT", "types of the Python sources"),
    "mypy-extensions": ("MIT", ""),
    "myst-parser": ("MIT", "reads the documents for the site"),
    "ninja": ("Apache-2.0", "builds the extension"),
    "numpy": ("BSD-3-Clause and others, all permissive", "arrays on the host"),
    "opt-einsum": ("MIT", ""),
    "optax": ("Apache-2.0", "the optimizers that DiLoCo is one of"),
    "orbax-checkpoint": ("Apache-2.0", ""),
    "packaging": ("Apache-2.0 OR BSD-2-Clause", ""),
    "parso": ("MIT", ""),
    "pathspec": ("MPL-2.0", ""),
    "pillow": ("MIT-CMU", ""),
    "pluggy": ("MIT", ""),
    "portpicker": ("Apache-2.0", ""),
    "prometheus-client": ("Apache-2.0 AND BSD-2-Clause", ""),
    "propcache": ("Apache-2.0", ""),
    "proselint": ("BSD-3-Clause", "style of README, SECURITY.md and docs/"),
    "protobuf": ("BSD-3-Clause", ""),
    "psutil": ("BSD-3-Clause", "the demo and tests look at processes"),
    "py-partiql-parser": ("MIT", ""),
    "pybind11": ("BSD-3-Clause", "the extension's Python side"),
    "pycparser": ("BSD-3-Clause", ""),
    "pygments": ("BSD-2-Clause", ""),
    "pyparsing": ("MIT", ""),
    "pytest": ("MIT", "runs the tests"),
    "pytest-timeout": ("MIT", "ends tests that hang"),
    "pytest-xdist": ("MIT", "tests in parallel"),
    "python-dateutil": ("BSD-3-Clause", ""),
    "pyyaml": ("MIT", ""),
    "ray": ("Apache-2.0", "tests of `jccl.ray`"),
    "referencing": ("MIT", ""),
    "requests": ("Apache-2.0", ""),
    "responses": ("Apache-2.0", ""),
    "rich": ("MIT", "tables of the `jccl` command"),
    "roman-numerals": ("0BSD OR CC0-1.0", ""),
    "rpds-py": ("MIT", ""),
    "ruff": ("MIT", "format and style of the Python sources"),
    "s3transfer": ("Apache-2.0", ""),
    "scikit-build-core": ("Apache-2.0", "builds wheels"),
    "scipy": ("BSD-3-Clause", ""),
    "simplejson": ("MIT OR AFL-2.1", ""),
    "six": ("MIT", ""),
    "smmap": ("BSD-3-Clause", ""),
    "snowballstemmer": ("BSD-3-Clause", ""),
    "sortedcontainers": ("Apache-2.0", ""),
    "soupsieve": ("MIT", ""),
    "sphinx": ("BSD-2-Clause", "builds the site (`make docs`)"),
    "sphinx-basic-ng": ("MIT", ""),
    "sphinx-copybutton": ("MIT", "buttons on the site that copy commands"),
    "sphinxcontrib-applehelp": ("BSD-2-Clause", ""),
    "sphinxcontrib-devhelp": ("BSD-2-Clause", ""),
    "sphinxcontrib-htmlhelp": ("BSD-2-Clause", ""),
    "sphinxcontrib-jsmath": ("BSD-2-Clause", ""),
    "sphinxcontrib-qthelp": ("BSD-2-Clause", ""),
    "sphinxcontrib-serializinghtml": ("BSD-2-Clause", ""),
    "sqlalchemy": ("MIT", ""),
    "stevedore": ("Apache-2.0", ""),
    "tensorboardx": ("MIT", "tests write event files"),
    "tensorstore": ("Apache-2.0", ""),
    "toml": ("MIT", ""),
    "treescope": ("Apache-2.0", ""),
    "typing-extensions": ("PSF-2.0", ""),
    "tzdata": ("Apache-2.0", ""),
    "urllib3": ("MIT", ""),
    "uv": ("MIT OR Apache-2.0", "installs what is locked"),
    "uvloop": ("MIT OR Apache-2.0", ""),
    "werkzeug": ("BSD-3-Clause", ""),
    "xmltodict": ("MIT", ""),
    "yarl": ("Apache-2.0", ""),
    "yattag": ("LGPL-2.1", ""),
    "zipp": ("MIT", ""),
}

# Debian package: (version tested with, licence, when, what for)
SYSTEM = {
    "g++": ("12.2.0", "GPL-3.0 with runtime exception", "build", "compiler, libstdc++"),
    "python3-dev": ("3.11.2", "PSF-2.0", "build", "headers of Python"),
    "python3-venv": ("3.11.2", "PSF-2.0", "set-up", "the virtual environment"),
    "libssl-dev": ("3.0.19", "Apache-2.0", "build, runtime", "TLS 1.3, HKDF"),
    "libsqlite3-dev": ("3.40.1", "public domain", "build, runtime", "the journal"),
    "libxxhash-dev": ("0.8.1", "BSD-2-Clause", "build", "digests, header only"),
    "libgtest-dev": ("1.12.1", "BSD-3-Clause", "test", "C++ tests"),
    "etcd-server": ("3.4.23", "Apache-2.0", "test, optional", "a journal that moves"),
    "strace": ("6.1", "LGPL-2.1+", "test", "records what etcd's disk would keep"),
    "iproute2": ("6.1.0", "GPL-2.0", "test, optional", "the wide-area lab"),
    "iperf3": ("3.12", "BSD-3-Clause", "test, optional", "rates of that lab"),
    "slurm-wlm": ("22.05.8", "GPL-2.0+", "test, optional", "jobs of a real Slurm"),
    "openssh-server": ("9.2p1", "BSD", "test", "hosts of `jccl launch`"),
    "clang-14": (
        *("14.0.6", "Apache-2.0 WITH LLVM-exception", "test"),
        "the sanitized build, fuzzing",
    ),
    "libclang-rt-14-dev": (
        *("14.0.6", "Apache-2.0 WITH LLVM-exception", "test"),
        "sanitizers and libFuzzer of clang",
    ),
}
CMAKE_PACKAGES = {
    "Threads": "g++",
    "OpenSSL": "libssl-dev",
    "SQLite3": "libsqlite3-dev",
    "GTest": "libgtest-dev",
    "Python": "python3-dev",
    "Python3": "python3-dev",
    "Boost": "cmeel-boost",
    "pybind11": "pybind11",
}


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def locked(name: str) -> list[tuple[str, str, str]]:
    """(package, version, marker) of a lock file."""
    return re.findall(ROW, LOCKS[name].read_text())


def wanted() -> dict[str, list[str]]:
    """What pyproject.toml and the files of .ci ask for, by when it is needed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]

    def lines(file: str) -> list[str]:
        text = (ROOT / ".ci" / file).read_text()
        return [line for line in text.splitlines() if line and line[0] != "#"]

    return {
        "runtime": project["project"]["dependencies"],
        "build": project["build-system"]["requires"] + lines("requirements.in"),
        "demo": extra["demo"],
        "test": extra["test"],
        "development": extra["dev"],
        "set-up": lines("requirements-uv.in"),
        **{name: lines(f"requirements-{name}.in") for name in TOOLS},
    }


def python_rows() -> list[tuple[str, ...]]:
    when: dict[str, list[str]] = {}
    for kind, requirements in wanted().items():
        if kind in TOOLS:
            continue
        for name in {name_of(requirement) for requirement in requirements}:
            when.setdefault(name, []).append(kind)
    versions: dict[str, dict[str, None]] = {}
    for lock in [lock for lock in LOCKS if lock not in TOOLS]:
        for name, version, _ in locked(lock):
            versions.setdefault(name, {})[version] = None
    rows = []
    for name in sorted(versions):
        licence, use = PYTHON[name]
        kinds = ", ".join(when.get(name, [])) or "of others"
        rows.append((f"`{name}`", ", ".join(versions[name]), licence, kinds, use))
    return rows


def tool_rows() -> list[tuple[str, ...]]:
    rows = []
    for lock, script in TOOLS.items():
        asked = {name_of(requirement) for requirement in wanted()[lock]}
        for name, version, _ in locked(lock):
            licence, use = PYTHON[name]
            rows.append(
                (f"`{name}`", version, licence, f"`{script}`", use * (name in asked))
            )
    return rows


def system_rows() -> list[tuple[str, ...]]:
    return [(f"`{name}`", *fields) for name, fields in SYSTEM.items()]
