"""Python runs this when it starts: the extension is the one that has planted bugs."""

import importlib.util
import os
import sys


class Planted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "jccl._core":
            return None
        return importlib.util.spec_from_file_location(
            name, os.environ["JCCL_PLANTED_CORE"]
        )


sys.meta_path.insert(0, Planted)
