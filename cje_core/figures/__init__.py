"""Figures of results: each function takes a result Dataset and draws on (and returns) matplotlib Axes.

``ax`` (``axes`` for two panels) is where to draw; by default a new figure in the house style, of a size that fits.

They print the field's panels (the paper's "Visualization primitives"): intervals and thresholds are drawn, colours are
those of Okabe and Ito, and every distinction carried by colour is carried by shape, hatching or text as well, so a page
printed in grey still reads. matplotlib is imported on the first call. ``with matplotlib.rc_context(style.STYLE)`` gives
a figure of your own the same look.

Rule of this package: a figure reads results and computes nothing that a table could print.
"""

from cje_core.figures.bayes import calibration_posterior, pit_ecdf, prior_predictive
from cje_core.figures.calibration_curve import calibration_band, calibration_curve, covariate_effects
from cje_core.figures.cohorts import cohorts
from cje_core.figures.ess_tails import ess_tails
from cje_core.figures.forest import forest
from cje_core.figures.mde_contours import mde_contours
from cje_core.figures.monitors import audit_power, control_charts, label_sequence, residual_bins
from cje_core.figures.orthogonality import orthogonality
from cje_core.figures.overlap_heatmap import overlap_heatmap
from cje_core.figures.reliability import reliability
from cje_core.figures.sensitivity import sensitivity_differences, sensitivity_levels
from cje_core.figures.transport_residuals import transport_residuals
from cje_core.figures.uncertainty_share import uncertainty_share
from cje_core.figures.weight_stabilisation import weight_stabilisation
from cje_core.figures.win_matrix import win_matrix

__all__ = [
    "audit_power",
    "calibration_band",
    "calibration_curve",
    "calibration_posterior",
    "cohorts",
    "control_charts",
    "covariate_effects",
    "ess_tails",
    "forest",
    "label_sequence",
    "mde_contours",
    "orthogonality",
    "overlap_heatmap",
    "pit_ecdf",
    "prior_predictive",
    "reliability",
    "residual_bins",
    "sensitivity_differences",
    "sensitivity_levels",
    "transport_residuals",
    "uncertainty_share",
    "weight_stabilisation",
    "win_matrix",
]
