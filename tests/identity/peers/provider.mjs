// A certified OpenID provider, set up as an authorization server of MCP servers.
//
//   node provider.mjs NODE_MODULES PORT RESOURCE
//
// Clients register themselves, refresh tokens rotate, and one that comes again ends the login.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, port, resource] = process.argv.slice(2);
const entry = createRequire(`${modules}/`).resolve("oidc-provider");
const { Provider } = await import(pathToFileURL(entry));

const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "resource-server",
      client_secret: "resource-server-secret",
      redirect_uris: [],
      response_types: [],
      grant_types: ["client_credentials"],
    },
    {
      client_id: "machine",
      client_secret: "machine-secret-of-tests",
      redirect_uris: [],
      response_types: [],
      grant_types: ["client_credentials"],
    },
  ],
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    introspection: { enabled: true },
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, asked) => {
        if (asked !== resource) throw new Error("unknown resource");
        return { scope: "read write", audience: resource, accessTokenTTL: Number(process.env.TTL ?? 3600), accessTokenFormat: "opaque" };
      },
    },
  },
  scopes: ["openid", "offline_access", "read", "write"],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: async (_, client, code) => client.grantTypeAllowed("refresh_token") && code.scopes.has("offline_access"),
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  cookies: { keys: ["only for tests"] },
});
provider.on("server_error", (_, error) => console.error(error));
provider.listen(Number(port), "127.0.0.1", () => console.log(`listens on ${issuer}`));
