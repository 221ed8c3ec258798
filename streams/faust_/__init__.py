"""What Faust needs to be told: its assignor and its transport. (The underscore keeps the name apart from Faust's own.)"""
