"""From runs to the statistics and figures that the field trusts."""
