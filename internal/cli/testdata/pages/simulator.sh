eval "$(flowlane env)"
SIM=$FLOWLANE_SIM_URL
