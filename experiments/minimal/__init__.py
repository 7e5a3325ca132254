"""Six checks of a recurrent network, on monthly employment by industry."""
