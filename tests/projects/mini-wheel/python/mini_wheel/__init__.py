from mini_wheel._native import loud, total, where

__all__ = ["loud", "total", "where"]
