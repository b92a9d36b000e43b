"""The node program against a Go peer, on one cluster, with one client.

The machine is shared and its speed changes from minute to minute, so no absolute figure says much. What counts are ratios: in every round all
contenders are measured within seconds of each other, in blocks whose order is swapped, and the figure is the median of the rounds' ratios with its
10-90 % span. The peer is `e2e/cluster/tools/cmd/benchpeer`.
"""
