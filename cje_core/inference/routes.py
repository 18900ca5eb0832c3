"""What a value rests on, by the route that its estimator took: labels of the policy's own, or what it borrows."""

import xarray as xr

from cje_core.inference.estimate import Status

# Routes of estimates that no label of the policy's own corrects, and of those that borrow nothing, whatever else their
# status says (labels that are equal, a judge that is inverted).
BORROWING = ("plug_in", "one_step", "balanced", "borrowed", "projection")
OWN = ("theta_aug", "aipw_hajek", "aipw_ht", "aipw_tmle", "label_mean", "mean_label", "mean_score",
       "probe_corrected", "probe_tuned", "own_labels", "corrected", "unlabelled", "all_rows")  # fmt: skip

# Routes whose value holds labels or probes of the policy's own: what a reported level has to rest on.
EARNED = ("theta_aug", "aipw_hajek", "aipw_ht", "aipw_tmle", "label_mean", "mean_label", "probe_corrected",
          "probe_tuned", "own_labels", "corrected", "unlabelled", "all_rows", "true_reward", "efficient")  # fmt: skip

# Routes that borrow no calibration and yet hold no label of the policy: the judge alone, and logged responses weighted.
JUDGE = ("mean_score",)
LOGS = ("snips", "calibrated_ips", "capped_ips", "dr_cpo", "calibrated_dr_cpo", "mrdr", "tmle", "stacked_dr")


def borrows(estimate: xr.Dataset) -> xr.DataArray:
    """Whether each policy's estimate rests on a calibration that no label of the policy's own corrects.

    Parameters
    ----------
    estimate : xr.Dataset
        An estimate: ``status``, and ``route`` where it has one.

    Returns
    -------
    xr.DataArray
        Boolean over ``policy``. True for status TRANSPORT_ASSUMED, for a borrowing route, and where status and route
        leave it open (a failure, poor overlap).

    Examples
    --------
    >>> columns = {"status": ("policy", [0, 1, 2]), "route": ("policy", ["theta_aug", "plug_in", "theta_aug"])}
    >>> borrows(xr.Dataset(columns)).values.tolist()
    [False, True, False]
    """
    status = estimate["status"]
    route = estimate["route"] if "route" in estimate else xr.full_like(status, "", dtype="U1")
    own = (status == Status.OK) | (route.isin(OWN) & (status != Status.TRANSPORT_ASSUMED))
    return ~own | route.isin(BORROWING)


def earned(estimate: xr.Dataset) -> xr.DataArray:
    """Whether labels or probes of each policy's own are in its value (`EARNED`); false where nothing says so.

    Examples
    --------
    >>> columns = {"status": ("policy", [0, 1, 0]), "route": ("policy", ["theta_aug", "plug_in", "mean_score"])}
    >>> earned(xr.Dataset(columns)).values.tolist()
    [True, False, False]
    """
    status = estimate["status"]
    route = estimate["route"] if "route" in estimate else xr.full_like(status, "", dtype="U1")
    return route.isin(EARNED) & (status != Status.TRANSPORT_ASSUMED)
