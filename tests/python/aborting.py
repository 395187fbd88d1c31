"""A second thread that ends a peer's open calls, as a user's interrupt does."""

import contextlib
import threading


@contextlib.contextmanager
def kept_aborting(comm):
    """Calls of `comm` in here end ABORTED, however long after their begin they wait."""
    ended = threading.Event()

    def abort():
        while not ended.wait(0.05):
            comm.abort()

    thread = threading.Thread(target=abort)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
