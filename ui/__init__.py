"""The dashboard's pages: a folder for each, and `shared` for what several of them use."""
