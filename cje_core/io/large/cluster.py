"""A running Dask cluster, for whoever sends it work: blocks of a study, row groups of a file."""

from concurrent.futures import CancelledError
from typing import Any

from cje_core.data.errors import said

PATIENCE = "10s"  # for a scheduler to answer
LOST = (OSError, CancelledError)  # what waiting for a result raises where the scheduler has gone away


class ClusterError(ValueError):
    """What keeps a cluster from being used, without the name that its user gave it."""


def connect(address: str) -> Any:
    """Client of the scheduler at `address`, to be closed by who asks for it (``with``).

    Raises
    ------
    ClusterError
        Without `distributed`, where no scheduler answers, or where it has no workers.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise ClusterError("it needs the package distributed: pip install 'cje-lab[dask]'") from None
    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ClusterError(f"no scheduler answers there ({said(error)})") from None
    if not workers(client):
        client.close()  # type: ignore[no-untyped-call]
        raise ClusterError("its scheduler has no workers; start some with dask worker")
    return client


def workers(client: Any) -> int:
    """How many workers a client's cluster has."""
    return len(client.scheduler_info(n_workers=-1)["workers"])
