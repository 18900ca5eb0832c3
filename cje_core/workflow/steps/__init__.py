"""The reference run order of the paper: an analysis step by step, with a file between one step and the next.

====  ==============  =================================================  ==========================================
step  name            reads                                              writes
====  ==============  =================================================  ==========================================
0     ``read``        files of responses and logs                        ``data.nc``, ``left_out.parquet``,
                                                                         ``config.json``
1     ``calibrate``   ``data.nc``                                        ``calibrator.nc``, ``rewards.parquet``
2     ``stabilise``   the data and ``rewards.parquet``                   ``weights.parquet``,
                                                                         ``stabilisation.nc``
3     ``estimate``    the data, calibrator, rewards and weights          ``estimates.nc``, ``members.nc``
4     ``stack``       the same and ``members.nc``                        ``stacked.nc``
5     ``jackknife``   the data, calibrator, rewards and weights          ``variance.nc``
6     ``report``      the data, calibrator and all estimates             what it returns: an `Analysis`
====  ==============  =================================================  ==========================================

Rule of this package: a step is a function of a directory that fits what is its own and reads the rest, so that any can
be run again from what the one before wrote, with the digits of `cje_core.workflow.analyze.analyze`. What a step owns:
``calibrate`` every fit of the calibrator, pooled, without each fold and, for the reruns of the jackknife, without two;
``stabilise`` every map of weights; ``estimate`` the nuisances of single estimators (TMLE's fluctuation, MRDR's outcome
model); no later step fits these again. The report's diagnostics and audits are its own. Steps 2 to 5 write nothing
where the data have no logged responses, or no stack was asked for.
"""
