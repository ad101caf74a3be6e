"""The experiments of the papers this product builds on, run again: claims, parameters, runs, and what came out.

One folder for each paper. An experiment gives plain data, which becomes JSON; tables, claims and figures are made of
that data alone, so a page can be rendered again without running anything.
"""
