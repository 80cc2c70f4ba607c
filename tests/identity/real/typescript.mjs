// The TypeScript SDK logs in to an MCP server and calls a tool: 1.x (sdk) or 2.x (client).
// Arguments: node_modules, the server's URL, a tool, the package.

import { createRequire } from 'node:module';

const [packages, url, tool, version] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const [{ Client }, { StreamableHTTPClientTransport }] = version === '2'
  ? [require('@modelcontextprotocol/client'), require('@modelcontextprotocol/client')]
  : [
      require('@modelcontextprotocol/sdk/client/index.js'),
      require('@modelcontextprotocol/sdk/client/streamableHttp.js'),
    ];

const callback = 'http://127.0.0.1:3999/callback';
let client, tokens, verifier, landed;

/** What a user and a browser do at a login page: follow redirects, and say yes. */
async function visit(start) {
  const jar = new Map();
  let where = start;
  let form;
  for (let step = 0; step < 12 && !where.startsWith(callback); step += 1) {
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
    const answer = await fetch(where, { redirect: 'manual', headers: { cookie }, method: form ? 'POST' : 'GET', body: form });
    form = undefined;
    for (const line of answer.headers.getSetCookie()) {
      const [pair] = line.split(';');
      jar.set(pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1));
    }
    if (!answer.headers.has('location')) {
      const text = await answer.text();
      // Keycloak's own page, where somebody types in a name and a password.
      const login = /<form id="kc-form-login"[^>]* action="([^"]+)"/.exec(text);
      if (login) {
        const [username, password] = process.env.LOGIN.split(':');
        where = login[1].replaceAll('&amp;', '&');
        form = new URLSearchParams({ username, password });
        continue;
      }
      if (!text.includes('value=allow')) throw new Error(`the login ended with ${answer.status}: ${text}`);
      const hidden = [...text.matchAll(/type=hidden name=(\w+) value=["']([^"']*)["']/g)];
      form = new URLSearchParams(hidden.map(([, name, value]) => [name, value.replaceAll('&amp;', '&')]));
      form.set('answer', 'allow');
      [where] = where.split('?');
      continue;
    }
    where = new URL(answer.headers.get('location'), where).href;
  }
  return new URL(where).searchParams;
}

const authProvider = {
  redirectUrl: callback,
  clientMetadata: {
    client_name: `typescript${version}`,
    redirect_uris: [callback],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
  },
  clientInformation: () => client,
  saveClientInformation: (saved) => { client = saved; },
  tokens: () => tokens,
  saveTokens: (saved) => { tokens = saved; },
  redirectToAuthorization: async (where) => { landed = await visit(where.href); },
  saveCodeVerifier: (saved) => { verifier = saved; },
  codeVerifier: () => verifier,
};

async function connect() {
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider });
  const made = new Client({ name: `typescript${version}`, version: '1.0.0' });
  try {
    await made.connect(transport);
  } catch (error) {
    if (landed === undefined) throw error;
    await transport.finishAuth(version === '2' ? landed : landed.get('code'));
    landed = undefined;
    return connect();
  }
  return made;
}

const made = await connect();
const result = await made.callTool({ name: tool, arguments: {} });
console.log(JSON.stringify({ text: result.content[0].text, scope: tokens.scope }));
await made.close();
