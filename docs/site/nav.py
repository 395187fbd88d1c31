"""What stands where on the site: its sections, in their order, and their pages."""

# Caption -> pages, as paths from the top of the repository without `.md`.
SECTIONS = {
    "Tutorials": [
        "docs/first-run",
        "docs/own-script",
        "docs/two-machines",
        "docs/resume",
    ],
    "How-to guides": [
        "docs/which-form",
        "docs/python",
        "docs/streaming",
        "docs/choosing",
        "docs/slow-peers",
        "docs/robust",
        "docs/spot",
        "docs/waiting",
        "docs/groups",
        "docs/moving",
        "docs/c-programs",
        "docs/data",
        "docs/checkpoints",
        "docs/operations",
        "docs/watching",
        "docs/monitoring",
        "docs/standby",
        "docs/slurm",
        "docs/ray",
        "docs/kubernetes",
        "docs/skypilot",
        "docs/gpu",
        "docs/proofs",
        "docs/lost-keys",
        "docs/metagenome",
        "benchmarks/wan/README",
    ],
    "Concepts": [
        "docs/agreement",
        "docs/diloco",
        "SECURITY",
        "docs/privacy",
        "docs/reliability",
        "docs/benchmarks",
    ],
    "Reference": [
        "docs/reference",
        "docs/cli",
        "docs/c-api",
        "docs/errors",
        "docs/settings",
        "docs/glossary",
        "docs/upgrading",
        "CHANGELOG",
    ],
    "For maintainers": [
        "CONTRIBUTING",
        "docs/architecture",
        "cpp/wire/PROTOCOL",
        "cpp/wire/FIELDS",
        "cpp/collective/ALGORITHMS",
        "cpp/protocol/DECISIONS",
        "docs/dependencies",
    ],
}
# Read on a forge alone: the site has its sections in their place.
NOT_HERE = {"docs/index"}
PAGES = [path for pages in SECTIONS.values() for path in pages]
