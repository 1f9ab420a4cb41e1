"""The study of cascades against a plain model with a tuned cut; its findings are in docs/validation/study.md."""
