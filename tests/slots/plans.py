"""Interconnection files that tests share."""

FIGURE_2 = """\
# Figure 2 of the report: one producer, three consumers.
bus figure2

slot producer required {
    program "python producer.py"
    out red
    out green
}
slot consumer1 { in in }   # transient
slot consumer2 { in in }
slot consumer3 { in in }

producer.red -> consumer1.in capacity 100 ttl 30 s
producer.green -> consumer2.in
producer.red -> consumer3.in
"""

SHEET = """\
bus sheet
slot sheet 1..4 {
    asks query : text -> data
    asks stress : data -> data
}
slot database required { answers query : text -> data }
slot stress invoked {
    program "python stress.py"
    answers load : data -> data
}
slot monitor shadow 0..many
sheet.query -> database.query ttl 10 min
sheet.stress -> stress.load capacity 10
"""
