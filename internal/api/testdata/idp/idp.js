// An OpenID provider on a free port of loopback, which it prints. Its clients are "admin" and "member"; a token is for the
// audience that its request names as "resource". People sign in to the client "console" with any password; all are admins of
// "acme" but those whose names say otherwise.
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const server = createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });

const provider = new Provider(issuer, {
  clients: [
    ...['admin', 'member'].map((id) => ({
      client_id: id, client_secret: `${id}-test-secret`, grant_types: ['client_credentials'], redirect_uris: [], response_types: [],
    })),
    { client_id: 'console', client_secret: 'console-test-secret', redirect_uris: ['https://console.test/'] },
  ],
  findAccount: (ctx, id) => ({
    accountId: id,
    claims: () => ({
      sub: id, name: `${id} of Acme`, org_id: id === 'stranger' ? 'elsewhere' : 'acme', role: id === 'member' ? 'member' : 'admin',
    }),
  }),
  claims: { openid: ['sub', 'org_id', 'role'], profile: ['name'] },
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256' }] },
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (ctx, resource) => ({
        audience: resource, scope: 'api', accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
  extraTokenClaims: (ctx, token) => ({ org_id: 'acme', role: token.clientId }),
});
// The port of the service is not known yet.
provider.Client.prototype.redirectUriAllowed = (address) => new URL(address).pathname === '/console/sign-in/callback';
server.on('request', provider.callback());
console.log(JSON.stringify({ issuer }));

// It ends with whoever started it.
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
