"""Mechanisms that know nothing of BERT: files, folders, checkpoints, devices, pictures. They import
no chapter.
"""
