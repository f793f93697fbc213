# The customers of the page, an order, and a document of somebody's API.
printf 'id,name\n1,Ada\n2,Bo\n' > customers.csv
echo '{"id": "17"}' > order.json
eval "$(flowlane env)"
curl -s "$FLOWLANE_URL/openapi.json" > parcels.json
unset FLOWLANE_URL FLOWLANE_API_KEY
mkdir catalog
