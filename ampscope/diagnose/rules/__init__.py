"""The rules of the catalogue, one file each: `ampNNN_name.py`. `rule.all_rules()` finds them by that name."""
