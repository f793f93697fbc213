// Orders behind the npm packages graphql and graphql-http.
const http = require("http");
const { buildSchema, GraphQLError } = require("graphql");
const { createHandler } = require("graphql-http/lib/use/http");

const schema = buildSchema(`
  input OrderInput { sku: String!, quantity: Int! }
  type Order { id: ID!, total: Int }
  type Query { order(id: ID!): Order }
  type Mutation { createOrder(input: OrderInput!, key: String): Order }`);
const made = new Map();
const rootValue = {
  order: ({ id }) => {
    if (id === "secret") throw new GraphQLError("not yours", { extensions: { code: "FORBIDDEN" } });
    return { id, total: () => { if (id === "half") throw new Error("no total"); return 5; } };
  },
  createOrder: ({ input, key }) => {
    if (input.sku === "lost") throw new GraphQLError("may be there", { extensions: { code: "INTERNAL" } });
    if (input.sku === "taken") throw new GraphQLError("is taken", { extensions: { code: "TAKEN" } });
    if (!made.has(key)) made.set(key, `o-${made.size + 1}`);
    return { id: `${made.get(key)}-${input.sku}`, total: input.quantity };
  },
};
const handler = createHandler({ schema, rootValue, onOperation: (_req, _args, result) => ({ ...result, extensions: { cost: { requestedQueryCost: 7 } } }) });
const server = http.createServer(handler);
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
