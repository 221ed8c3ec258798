"""Functions of people in processes of their own."""
