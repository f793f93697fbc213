// Signing in, and what attackers try. Which attack is tried where:
//   markup in every name                     screens.test.mjs (no element is made of it, and its policy forbids to run it); in an address: here
//   requests that other pages forge          here; internal/api TestSession (another page, another server of this machine, a program)
//   a stolen cookie after the sign-out       here; internal/api TestSession_Ends (the end of the key, 12 hours, 2 hours idle)
//   a stolen cookie that makes another one   internal/api TestSession
//   a page around the console (clickjacking) here; internal/console TestConsole (frame-ancestors)
//   a session that somebody planted          here
//   a token in an address                    page.mjs, for every request of every test
//   a token in the log                       server.mjs, when the server of each file of tests stops
//   a link that is followed twice            here; internal/api TestSession_Link (also later, and at another server)
//   a session that may more than its key     internal/api TestSession_KeepsToItsGrant
//   a cookie over plain HTTP                 internal/api TestSession_PlainHTTP
//   a forged answer of an identity provider  internal/api TestSession_OfAnIdentityProvider, TestSession_OfIDTokens
//   smuggled and malformed requests          internal/app TestFront_Smuggling
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { at, budgets, examine, go, open, until } from './page.mjs';
import { start } from './server.mjs';

let server;
let provider;

/** Starts the OpenID provider that the tests of the API use, which others wrote. */
async function identityProvider() {
  const folder = await mkdtemp(path.join(tmpdir(), 'flowlane-idp-'));
  for (const name of ['idp.js', 'package.json', 'package-lock.json']) {
    await cp(fileURLToPath(new URL(`../../internal/api/testdata/idp/${name}`, import.meta.url)), path.join(folder, name));
  }
  await promisify(execFile)('npm', ['ci', '--no-audit', '--no-fund', '--ignore-scripts'], { cwd: folder });
  const child = spawn('node', ['idp.js'], { cwd: folder, stdio: ['pipe', 'pipe', 'ignore'] });
  const said = await new Promise((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`the identity provider ended with ${code}`)));
    child.stdout.once('data', (text) => resolve(JSON.parse(text)));
  });
  return {
    issuer: said.issuer,
    stop: () => {
      child.stdin.end();
      return rm(folder, { recursive: true, force: true });
    },
  };
}

before(async () => {
  provider = await identityProvider();
  server = await start('--jwt-issuer', provider.issuer, '--jwt-audience', 'https://api.flowlane.test', '--jwt-keys-url', `${provider.issuer}/jwks`,
    '--oidc-client-id', 'console', '--oidc-client-secret', 'console-test-secret');
  await server.sql("UPDATE flow.organization SET external_id = 'acme'");
}, { timeout: 120_000 });
after(async () => {
  await server?.stop();
  await provider?.stop();
});

describe('signing in', () => {
  it('follows the link that dev prints once, and leaves nothing of it in the address', async () => {
    const { page } = await open(server);
    await page.goto(server.link);
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    assert.equal(page.url(), `${server.url}/console/`);
    assert.equal(await page.evaluate(() => document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)), '{}{}');
    const again = await open(server);
    await again.page.goto(server.link);
    await again.page.getByRole('alert').waitFor();
  });

  it('asks who is signed in before it follows a link', async () => {
    const { page } = await open(server);
    await page.goto(`${server.url}/console/login`);
    await page.getByLabel('API key').fill(server.key);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    let followed = 0;
    page.on('request', (r) => {
      if (r.method() === 'POST' && r.url().endsWith('/v1/account/session')) followed++;
    });
    await page.goto(`${server.url}/console/login#login_of_somebody_else`);
    await page.getByText('The link signs you in anew').waitFor();
    assert.deepEqual([followed, new URL(page.url()).hash], [0, '']);
    await page.getByRole('button', { name: 'Stay signed in' }).click();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    assert.equal(followed, 0);
    await page.goto(`${server.url}/console/login#login_of_another`);
    await page.getByRole('button', { name: 'Follow the link' }).click();
    await page.getByRole('alert').nth(1).waitFor();
    assert.equal(followed, 1);
  });

  it('takes a key, sends who is not signed in to sign in, and refuses another key', async () => {
    const view = await open(server);
    const { page } = view;
    await page.goto(`${server.url}/console/batches`);
    await page.waitForURL('**/console/login');
    await page.getByRole('link', { name: 'Sign in with your organization' }).waitFor();
    await page.getByLabel('API key').fill('flow_wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').waitFor();
    assert.deepEqual(await examine(view, 'the sign-in'), []);
    await page.getByLabel('API key').fill(server.key);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
  });

  it('leads to the identity provider and back, for members and for nobody else', async () => {
    // The pages of the provider are not ours; they ask for a font, which this browser finds nowhere.
    const theirs = [new RegExp(`^asks ${provider.issuer}/`), /^asks https:\/\/fonts\.googleapis\.com\//];
    const depart = async (name) => {
      const { page } = await open(server, { expected: theirs });
      await page.goto(`${server.url}/console/login`);
      await page.getByRole('link', { name: 'Sign in with your organization' }).click();
      await page.locator('[name=login]').fill(name);
      await page.locator('[name=password]').fill('any');
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: 'Continue' }).click();
      await page.waitForURL(`${server.url}/console/**`);
      return page;
    };
    const member = await depart('member');
    await member.getByRole('heading', { name: 'Overview' }).waitFor();
    await member.getByText('member', { exact: true }).waitFor();
    assert.equal(member.url(), `${server.url}/console/`);
    const stranger = await depart('stranger');
    await stranger.getByRole('alert').getByText('but to no organization of this server').waitFor();
  });
});

describe('an attacker', () => {
  it('has nothing of a stolen cookie after the sign-out', async () => {
    const { page, context } = await at(server, '', { own: true });
    const [cookie] = await context.cookies(server.url.replace('http:', 'https:'));
    assert.ok(cookie.httpOnly && cookie.secure && cookie.sameSite === 'Strict');
    const show = () => fetch(`${server.url}/v1/account/me`, { headers: { Cookie: `${cookie.name}=${cookie.value}`, 'Sec-Fetch-Site': 'same-origin' } });
    assert.equal((await show()).status, 200);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.waitForURL('**/console/login');
    assert.equal((await show()).status, 401);
  });

  it('does nothing from another page, and not around one', async () => {
    const { page } = await at(server, '', { expected: [/^asks http:\/\/(localhost|127\.0\.0\.1):/, /frame-ancestors|refused to connect/i] });
    // Another site on this machine, and another port of the same one: their requests carry what the browser lets them carry. The form
    // leaves the page, and so waits until all of it was loaded, the frame too.
    const attacker = createServer((_, answer) => answer.setHeader('Content-Type', 'text/html').end(`
      <script>const loaded = new Promise((done) => addEventListener('load', done))</script>
      <iframe src="${server.url}/console/"></iframe>
      <form method="post" enctype="text/plain" action="${server.url}/v1/admin/dispatch/pause"></form>
      <script>Promise.all([loaded, fetch('${server.url}/v1/account/me', {credentials: 'include', mode: 'no-cors'})])
        .then(() => document.forms[0].submit())</script>`));
    await new Promise((ready) => attacker.listen(0, '127.0.0.1', ready));
    attacker.unref();
    await page.goto('about:blank');
    const statuses = [];
    let framed = 0;
    page.on('response', (r) => r.url().startsWith(`${server.url}/v1/`) && statuses.push(r.status()));
    page.on('console', (m) => { if (/frame-ancestors|refused to connect/.test(m.text())) framed++; });
    for (const host of ['localhost', '127.0.0.1']) {
      statuses.length = framed = 0;
      await page.goto(`http://${host}:${attacker.address().port}/`, { waitUntil: 'commit' });
      await page.waitForURL('**/v1/admin/dispatch/pause', { waitUntil: 'commit' });
      await until(() => statuses.length >= 2, 'the answers to the forged requests');
      await until(() => framed > 0, 'the refusal of the frame');
      assert.ok(statuses.every((s) => s === 401), `${host}: ${statuses}`);
    }
    attacker.closeAllConnections();
    attacker.close();
    assert.deepEqual((await server.api('GET', '/admin/dispatch/pauses')).items, []);
  });

  it('has nobody work in a session that was planted', async () => {
    const { key } = await server.api('POST', '/account/api-keys', { name: 'of the attacker', role: 'member' });
    const { page, context } = await at(server, '', { key, own: true });
    const value = async () => (await context.cookies(server.url.replace('http:', 'https:')))[0].value;
    const planted = await value();
    await page.goto(`${server.url}/console/login`);
    await page.getByLabel('API key').fill(server.key);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    assert.notEqual(await value(), planted);
    assert.equal(await page.getByText('member', { exact: true }).count(), 0);
  });

  it('has no markup run that stands in an address', async () => {
    const view = await at(server);
    const markup = encodeURIComponent('<img src=x onerror=alert(1)><b>');
    for (const place of [`batches?flow=${markup}`, `audit?action=${markup}&resource=${markup}`, `catalog?q=${markup}`, `flows?name=${markup}`, markup]) {
      await go(server, view, place);
      assert.equal(await view.page.locator('img[src=x], b').count(), 0, place);
    }
    await view.page.goto(`${server.url}/console/login?failed=${markup}#${markup}`);
    await view.page.getByLabel('API key').waitFor();
    assert.equal(await view.page.getByRole('alert').count(), 0);
  });
});

it('finds out a page that does what none may', async (t) => {
  const kept = { ...budgets };
  t.after(() => Object.assign(budgets, kept));
  const view = await at(server, '', { expected: [/./] }); // the faults are the aim of this test alone
  const wrong = {
    'forbidden by style-src-attr': () => document.body.setAttribute('style', 'color: red'),
    'forbidden by connect-src': () => fetch('http://127.0.0.1:9/').catch(() => undefined),
    'forbidden by require-trusted-types-for': () => { try { document.createElement('p').innerHTML = '<b>'; } catch { /* as it should */ } },
    '422 to': () => fetch('/v1/flows/batches?limit=0'),
    'has a secret': () => fetch('/console/?key=flow_0123456789abcdefABCD'),
    'a mistake of ours': () => setTimeout(() => { throw new Error('a mistake of ours'); }),
  };
  for (const [fault, deed] of Object.entries(wrong)) {
    await view.page.evaluate(deed);
    await until(() => view.faults.some((f) => f.includes(fault)), `${fault} among ${view.faults.join('; ')}`);
  }
  Object.assign(budgets, { paint: 1000, read: 10 });
  await view.page.reload();
  await until(() => ['before it paints', 'bytes of'].every((fault) => view.faults.some((f) => f.includes(fault))), 'what is too much');
  await view.page.evaluate(() => location.assign('http://localhost:9/')).catch(() => undefined);
  await until(() => view.faults.some((f) => f.includes('asks http://localhost:9/')), 'the request to another server');
});
