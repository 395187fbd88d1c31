"""Groups of options: what they refuse, how they print, and what a caller is told who
passes a field of one as a keyword."""

import dataclasses
import pathlib

import numpy as np
import optax
import pytest

import jccl
from jccl._groups import Group
from jccl.optim.options import in_groups

ROUNDS = (jccl.Round, jccl.Place, jccl.Travel, jccl.Rounds)
GROUPS = (*ROUNDS, jccl.Site, jccl.Security, jccl.Waits, jccl.Transport, jccl.Reactions)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_a_default_for_every_field_and_cannot_be_changed(group):
    assert issubclass(group, Group) and 1 < len(dataclasses.fields(group)) <= 8
    made = group()
    assert repr(made) == f"{group.__name__}()" and made.given() == {}
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, dataclasses.fields(group)[0].name, 1)


def test_a_group_prints_what_differs_from_the_defaults():
    waits = jccl.Waits(connect_timeout=2, master_grace=60.0, start_peers=3)
    assert repr(waits) == "Waits(connect_timeout=2, start_peers=3)"
    assert str(jccl.Site("eu")) == "Site(name='eu')"


def test_groups_are_equal_by_their_fields_and_arrays_by_identity():
    assert jccl.Waits(connect_timeout=2) == jccl.Waits(connect_timeout=2.0)
    assert jccl.Waits(connect_timeout=2) != jccl.Waits(connect_timeout=3)
    assert jccl.Waits() != jccl.Security() and jccl.Waits() != 1
    assert len({jccl.Round(), jccl.Round(deadline=None), jccl.Round(deadline=3)}) == 2
    x = np.zeros(3)
    assert jccl.Place(out=x) == jccl.Place(out=x)
    assert jccl.Place(out=x) != jccl.Place(out=x.copy())
    assert jccl.Place(passing=(x,)) != jccl.Place(passing=(x.copy(), x))


WRONG = {
    "deadline=0 must be seconds": lambda: jccl.Round(deadline=0),
    "deadline must be a number": lambda: jccl.Round(deadline="5"),
    "join_timeout=16 must be above 0": lambda: jccl.Round(join_timeout=16),
    "unknown plan 'tree'": lambda: jccl.Round(plan="tree"),
    "unknown aggregator 'mode'": lambda: jccl.Round(aggregator="mode"),
    "guard=1 must be bool": lambda: jccl.Round(guard=1),
    "quorum=0.9 must be Quorum": lambda: jccl.Round(quorum=0.9),
    "fingerprint must be a string": lambda: jccl.Round(fingerprint=7),
    "error_feedback=2 must be True, or": lambda: jccl.Travel(error_feedback=2),
    "error_feedback='on' must be Real": lambda: jccl.Travel(error_feedback="on"),
    "on_device=1 must be bool": lambda: jccl.Travel(on_device=1),
    "merge='mode' is unknown": lambda: jccl.Travel(merge="mode"),
    "clip='yes' must be bool": lambda: jccl.Travel(clip="yes"),
    "weight=-1 must be 0": lambda: jccl.Travel(weights=-1),
    "data=3 must be Plan": lambda: jccl.Travel(data=3),
    "diagnostics=2 must be bool": lambda: jccl.Travel(diagnostics=2),
    "tag '' must have 1 to 64 bytes": lambda: jccl.Rounds(tag=""),
    "fragments=0 must be from 1": lambda: jccl.Rounds(fragments=0),
    "must be a number, or a number and a": lambda: jccl.Rounds(fragments=(2, 3)),
    "fragments=2.5 must be Integral": lambda: jccl.Rounds(fragments=2.5),
    "overlap=-1 must be from 0": lambda: jccl.Rounds(overlap=-1),
    "mixing=1 is not in": lambda: jccl.Rounds(mixing=1),
    "late='lose' is unknown": lambda: jccl.Rounds(late="lose"),
    "join='all' is unknown": lambda: jccl.Rounds(join="all"),
    "nan_rounds=0 must be at least 1": lambda: jccl.Rounds(nan_rounds=0),
    "each=20 must be Round": lambda: jccl.Rounds(each=20),
    "takes no guard= of jccl.Round, only": lambda: jccl.Rounds(
        each=jccl.Round(guard=False)
    ),
    "in_place='yes' must be bool": lambda: jccl.Place(in_place="yes"),
    "shard=-1 must": lambda: jccl.Site("eu", shard=-1),
    "shards=0 must": lambda: jccl.Site("eu", shards=0),
    "shard='1' must be Integral": lambda: jccl.Site("eu", shard="1"),
    "site must be a string": lambda: jccl.Site(7),
    "key_file=3 must be str or PathLike": lambda: jccl.Security(key_file=3),
    "insecure='no' must be bool": lambda: jccl.Security(insecure="no"),
    "connect_timeout=-1 must be seconds": lambda: jccl.Waits(connect_timeout=-1),
    "master_grace='60' must": lambda: jccl.Waits(master_grace="60"),
    "start_peers=-1 must be a number of sites": lambda: jccl.Waits(start_peers=-1),
    "bind must be a string": lambda: jccl.Transport(bind=29400),
    "advertise=7 must": lambda: jccl.Transport(advertise=7),
    "stripes=-1 must": lambda: jccl.Transport(stripes=-1),
    "max_rate=9999 must be bytes per second": lambda: jccl.Transport(max_rate=9999),
    "day_bytes=900 must be bytes per day": lambda: jccl.Transport(day_bytes=900),
    "max_rate='1e6' must be Real": lambda: jccl.Transport(max_rate="1e6"),
    "max_rate=inf must": lambda: jccl.Transport(max_rate=float("inf")),
    "io_threads='1' must be bool": lambda: jccl.Transport(io_threads="1"),
    "unknown route 'tcp'": lambda: jccl.Transport(route="tcp"),
    "on_fault='loud' is unknown": lambda: jccl.Reactions(on_fault="loud"),
    "on_term='later' is unknown": lambda: jccl.Reactions(on_term="later"),
    "record=1 must be str or PathLike": lambda: jccl.Reactions(record=1),
    "record_mib=-2 must be MiB": lambda: jccl.Reactions(record_mib=-2),
    "record_on_signal=1 must": lambda: jccl.Reactions(record_on_signal=1),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_field_is_named_with_what_it_got(text):
    with pytest.raises((TypeError, ValueError, jccl.InvalidError), match=text):
        WRONG[text]()


def test_what_is_right_is_taken():
    numbers = jccl.Waits(connect_timeout=np.float32(2), start_peers=np.int64(3))
    assert numbers.start_peers == 3
    path = pathlib.Path("key")
    assert jccl.Security(key_file=path).key_file == path
    assert callable(jccl.Reactions(on_term=print).on_term)


MOVED = {
    r"all_reduce\(\) takes deadline= in a group: write "
    r"round=jccl\.Round\(deadline=…\)": lambda: jccl.all_reduce(
        np.ones(2), None, deadline=20
    ),
    r"write place=jccl\.Place\(token=…\)": lambda: jccl.barrier(None, token=1),
    r"write place=jccl\.Place\(axis_name=…\)": lambda: jccl.start(
        np.ones(2), None, axis_name="d"
    ),
    r"diloco\(\) takes clip= in a group: write travel=jccl\.Travel\(clip=…\)": (
        lambda: jccl.diloco(None, None, sync_every=2, clip=True)
    ),
    r"write rounds=jccl\.Rounds\(each=jccl\.Round\(deadline=…\)\)": (
        lambda: jccl.eager_diloco(None, None, sync_every=2, deadline=20)
    ),
    r"between_steps\(\) takes overlap= in": lambda: jccl.between_steps(
        None, sync_every=2, overlap=1
    ),
    r"broadcast\(\) takes state= in": lambda: jccl.Communicator.broadcast(
        None, np.ones(2), root=True, state=1
    ),
    r"write waits=jccl\.Waits\(connect_timeout=…\)": lambda: jccl.connect(
        "127.0.0.1:1", connect_timeout=1
    ),
    r"connect\(\) takes shard= in a group: write site=jccl\.Site\(shard=…\)": (
        lambda: jccl.connect("127.0.0.1:1", shard=1)
    ),
}


@pytest.mark.parametrize("text", MOVED)
def test_a_keyword_that_is_a_field_is_told_its_group(text):
    with pytest.raises(TypeError, match=text):
        MOVED[text]()


def test_a_keyword_of_no_group_is_refused_as_python_does():
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        jccl.connect(colour="127.0.0.1:1")


def test_the_fields_that_a_function_makes_no_use_of_are_refused():
    jccl.Waits(start_peers=2).only("this", "start_peers")
    with pytest.raises(TypeError, match=r"this takes no start_peers= of jccl\.Waits"):
        jccl.Waits(start_peers=2).only("this", "master_grace")


def test_an_array_that_equals_a_default_is_given_all_the_same():
    place = jccl.Place(passing=np.zeros(0), in_place=np.bool_(False) is None)
    assert list(place.given()) == ["passing"]
    assert jccl.Round(state=()).given() == {"state": ()}
    assert jccl.Place(passing=()).given() == {}
    assert repr(jccl.Round(deadline=2.0, guard=False)) == (
        "Round(deadline=2.0, guard=False)"
    )


def test_a_variant_refuses_what_it_makes_no_use_of():
    refused = r"jccl\.eager_diloco takes no clip= of jccl\.Travel, only error_feedback"
    with pytest.raises(TypeError, match=refused):
        jccl.eager_diloco(None, None, sync_every=2, travel=jccl.Travel(clip=True))
    with pytest.raises(TypeError, match=r"takes no overlap= of jccl\.Rounds, only tag"):
        jccl.eager_diloco(None, None, sync_every=2, rounds=jccl.Rounds(overlap=1))
    with pytest.raises(TypeError, match=r"jccl\.diloco takes no token= of jccl\.Place"):
        jccl.diloco(None, None, sync_every=2, place=jccl.Place(token=1))


def test_a_variant_fills_in_its_own_defaults_and_a_user_overrules_them():
    class Nowhere:
        """No communicator: nothing is called."""

    comm = Nowhere()

    def travel_of(**given):
        travel = jccl.Travel(**given)
        tx = jccl.sparse_loco(comm, optax.sgd(0.1), sync_every=2, travel=travel)
        sends = tx.init.__self__.sends
        return sends.decay, sends.clip, sends.measures

    assert travel_of() == (0.95, True, False)
    assert travel_of(diagnostics=True) == (0.95, True, True)
    assert travel_of(error_feedback=False, clip=False) == (None, False, False)


def test_names_alone_are_sorted_into_the_groups():
    sorted_ = in_groups(sync_every=3, overlap=1, clip=True, deadline=5, specs="cut")
    assert sorted_ == {
        "sync_every": 3,
        "travel": jccl.Travel(clip=True),
        "rounds": jccl.Rounds(overlap=1, each=jccl.Round(deadline=5)),
        "place": jccl.Place(specs="cut"),
    }
    assert in_groups(codec=None) == {"codec": None}
