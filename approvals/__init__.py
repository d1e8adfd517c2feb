"""The answers: votes, quorum, reviewers' keys, pages. Built by the issues that follow; empty for now."""
