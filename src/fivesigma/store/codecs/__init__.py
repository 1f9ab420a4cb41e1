"""How each kind of value is stored; the first codec that takes a value packs it."""

from __future__ import annotations

from fivesigma.store.codecs import categories_records, estimators, learners, plain, scikit

CODECS = (*plain.CODECS, *estimators.CODECS, *learners.CODECS, *categories_records.CODECS, *scikit.CODECS)
STORABLE = (*estimators.ESTIMATORS, estimators.NET, *categories_records.STORABLE_RECORDS)
