"""Organizations, their people and agents, and the keys agents and services sign in with."""
