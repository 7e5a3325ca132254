"""Experiments that each show one claim: `python -m experiments` lists them."""

GROUPS = {
    "Start here": {
        "minimal": "Six checks of a recurrent network, pass or fail, on employment by industry.",
        "vowels": "Who is speaking? Elman, GRU and LSTM on recorded vowels; what padding does.",
        "memorisation": "A page to point at: which earlier characters a prediction depends on.",
        "models": "A table of all models: carry, memory, multiply-adds, depth, what they support.",
    },
    "What networks can do": {
        "memory": "What a state can carry: counted, and learnt by twelve models on five tasks.",
        "characters": "The next character of Python's own texts: five mixers, free running.",
        "tagging": "The token of every character of Python source; packed or padded.",
        "translate": "Written numbers of five languages to digits: a fixed vector, or attention.",
        "digits": "Digits pixel by pixel: eleven models of one size; accuracy, time, reach.",
        "published": "Networks of other packages, read and run: spelling, sleep, speech.",
        "dynamics": "Fixed points of trained networks: three bits, evidence, leaks.",
        "recurrent_policy": "Recurrent PPO inside one jit: T-maze, repeat-first, cart-pole.",
    },
    "Training": {
        "gradients": "Vanishing and exploding: Jacobians, gates, clipping, truncation.",
        "long_gradient": "The gradient of an LSTM through a million steps: memory and time.",
        "online": "Gradients that go forwards with a stream, beside truncated ones.",
        "newton": "When Newton's method on a whole sequence converges, and when it does not.",
        "rounding": "Every model in float32 against float64, along 65,536 steps.",
    },
    "Speed": {
        "cost": "Measured time and memory of RNN, state space and attention against T.",
        "linear_scan": "The linear recurrence beside associative_scan: time to run and to compile.",
        "serve": "A streaming server: 200 sessions, one batched step, masks and resets.",
        "benchmark": "Speed and memory beside flax, haiku, equinox, keras, torch and plain scans.",
    },
}
"""Names and what they show, grouped by what a reader wants."""

EXPERIMENTS = {name: line for group in GROUPS.values() for name, line in group.items()}
