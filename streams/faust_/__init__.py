"""The parts of Faust that are replaced: its assignor and its transport. (The underscore keeps the name apart from
Faust's own.)"""
