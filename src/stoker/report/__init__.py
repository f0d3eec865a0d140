"""Pages, traces, graphs and CI output of builds."""
