"""Time and memory against T: RNN, state space and attention, measured beside what is predicted."""
