eval "$(flowlane env)"
echo '{"id": "17"}' > order.json
