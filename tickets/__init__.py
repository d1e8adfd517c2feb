"""The question: what happens to tickets by itself. Policies and standing approvals are built by the issues that follow."""
