"""Bulk work as Spark jobs: the same code as in process, on many machines.

A job is a list of work items; an executor opens SQL and the store itself, and answers with facts.
"""
