"""How each library takes weights: a learner is bound to its events once and trained with many weights."""
