"""The question: tickets, policies, standing approvals. Built by the issues that follow; empty for now."""
