// An OpenID provider (oidc-provider) that logs everybody in at once, for tests.
// Arguments: a JSON object with `packages` (node_modules), `port`, `format` (jwt or opaque), `ttl`, `clients`.
// Prints its issuer when it listens.

import crypto from 'node:crypto';
import http from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const given = JSON.parse(process.argv[2]);
const require = createRequire(`${given.packages}/`);
const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

const server = http.createServer();
await new Promise((listening) => server.listen(given.port ?? 0, '127.0.0.1', listening));
const issuer = `http://127.0.0.1:${server.address().port}`;

// New ones at each start: started again on the same port, it has rotated its keys.
const { privateKey } = crypto.generateKeyPairSync('rsa', { modulusLength: 2048 });
const kid = crypto.randomUUID();

const provider = new Provider(issuer, {
  clients: given.clients ?? [],
  jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), kid, alg: 'RS256', use: 'sig' }] },
  cookies: { keys: ['not a secret'] },
  pkce: { required: () => true },
  scopes: ['openid', 'offline_access', 'mcp:tools', 'notes:read'],
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  extraTokenClaims: (_, token) => ({ email: `${token.accountId}@example.com`, groups: ['dev'] }),
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  issueRefreshToken: (_, client) => client.grantTypeAllowed('refresh_token'),
  rotateRefreshToken: true,
  ttl: { AccessToken: given.ttl ?? 300, ClientCredentials: given.ttl ?? 300 },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    introspection: { enabled: true },
    revocation: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => undefined,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({
        scope: 'mcp:tools notes:read',
        audience: resource,
        accessTokenFormat: given.format ?? 'jwt',
        accessTokenTTL: given.ttl ?? 300,
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
  renderError: (ctx, out) => { ctx.type = 'json'; ctx.body = out; },
});

async function agree(request, response) {
  const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
  if (prompt.name === 'login') {
    const result = { login: { accountId: params.login_hint ?? 'ann' } };
    return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
  }
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingOIDCClaims, missingResourceScopes } = prompt.details;
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(' '));
  if (missingOIDCClaims) grant.addOIDCClaims(missingOIDCClaims);
  for (const [resource, scopes] of Object.entries(missingResourceScopes ?? {})) {
    grant.addResourceScope(resource, scopes.join(' '));
  }
  const result = { consent: { grantId: await grant.save() } };
  return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
}

const callback = provider.callback();
server.on('request', (request, response) => {
  if (!request.url.startsWith('/interaction/')) return callback(request, response);
  return agree(request, response).catch((error) => {
    response.statusCode = 500;
    response.end(String(error));
  });
});
console.log(issuer);
