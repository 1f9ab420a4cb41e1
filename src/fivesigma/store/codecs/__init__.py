"""How each kind of value is stored; the first codec that takes a value packs it."""

from __future__ import annotations

from fivesigma.store.codecs import categories_records, estimators, learners, nets, plain, scikit

CODECS = (*plain.CODECS, *estimators.CODECS, *learners.CODECS, *nets.CODECS, *categories_records.CODECS, *scikit.CODECS)
STORABLE = (*estimators.ESTIMATORS, nets.NAME, *categories_records.STORABLE_RECORDS)
