"""The overlay: topics spread over many nodes, with filters at the owner of each topic.

Nodes have ids on a ring. A topic belongs to the node whose id is nearest to the hash of the topic's name. Every node
accepts every command and routes it to the owner. The state of topics is replicated to the owner's neighbours.

    identifier      ids of nodes and keys of topics: the ring, distance, digits; how an id is derived and verified
    peer_address    one start of a node: its id, incarnation, network and address
    peer_view       the nodes that are believed to be alive, sorted by id
    membership      who is in the network: joining, leaving, comparing views; it assembles the cores below
    failure_detector    who has failed: probes, votes, refutations
    local_health   own_time     how far a node trusts itself; time without stalls of its own loop
    peer_table   gossip_queue   what a node knows of its peers; what it still passes on
    packet   membership_messages    the envelope of every message, its verification, and the messages
    router          the next hop to the owner of a key: one hop with full membership, otherwise by prefix
    prefix_routing   leaf_set   routing_table   Pastry, for networks of more than some hundreds of nodes
    dissemination   how a notification reaches many subscriber nodes: directly, or over a tree of relays

    configuration   arcs of the key space, and the nodes that are responsible for one in an epoch
    range_map       the newest configuration that a node knows for each key

    command         commands on topics and their answers
    topic           the state of a topic, permissions, and the execution of commands on it
    answer_table    answers of executed commands, so that none is executed twice
    range_state     the replicated state of a range: topics, answers, unfinished deliveries
    range_log       the newest entries of a range's log

    replica         a copy of a range: stores what the owner appends, and votes on what follows (theory of operation)
    owner           orders, replicates and executes the commands of a range
    reconfiguration one node's attempt to decide what follows a configuration
    transfer        the state of a range on its way to another node
    state_transfers all transfers of a node
    hand_over       the preparation of a change by the owner
    confirmations   which members have the state of their range
    placement       where ranges should be
    replication     all ranges of a node, and their supervision
    delivery        notifications until they are acknowledged

    command_buffer  commands that wait at a node for a hand-over
    outstanding_commands  commands of this node without an answer
    messages        what nodes send each other about ranges and commands
    node            a node as a whole: routes commands, delivers notifications, leaves

    effects         what a core asks of the code that runs it: send, set a timer
    errors          the exceptions

All of these are pure: `handle(event, now)` returns effects, and time, random numbers and ids are arguments. So whole
networks run in one process under a seeded simulator. docs/overlay.md explains the algorithms.
"""
