// One operator's night, in the order of the night.

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";

import { AccountsPage } from "../pages/accounts.js";
import { LoginPage } from "../pages/login.js";
import { PoolsPage } from "../pages/pools.js";
import { TasksPage } from "../pages/tasks.js";
import { launch, Tab } from "../support/browser.js";
import { admin, screenshots } from "../support/environment.js";
import { behave, complete } from "../support/gateway.js";

/** Two polls and some: what changed must be on the page by then. */
const SOON = { timeout: 12_000 };

const POOL = process.env.FOREBAY_POOL ?? "main_text";

describe("the console", () => {
  let browser;
  let tab;

  before(async () => {
    browser = await launch();
    tab = await Tab.open(browser);
  });
  after(() => browser?.close());
  afterEach(() => tab.assertQuiet());

  test("leads to login and from there to the page that was wanted", async () => {
    await tab.goto("/admin/tasks?status=failed");
    assert.match(tab.page.url(), /\/admin\/login\?next=/);
    const login = new LoginPage(tab);
    await login.signIn({ ...admin, password: "wrong" });
    await login.problem.waitFor();
    assert.match(await login.problem.innerText(), /Wrong name or password/);
    await login.signIn(admin);
    assert.match(tab.page.url(), /\/admin\/tasks\?status=failed$/);
  });

  test("shows a breaker opening without a reload, and resets it", async () => {
    const pools = new PoolsPage(tab);
    await pools.goto();
    await pools.turn(POOL);
    await tab.page.locator("tr[data-model]").first().waitFor();
    const upstreams = await upstreamNames(tab.page);
    const loads = countLoads(tab.page);
    await Promise.all(upstreams.map((model) => behave(model, "500")));
    const red = tab.page.locator(`.badge[data-state="open"]`).first();
    await keepSending(POOL, () => red.isVisible());
    assert.match(await red.innerText(), /Open/);
    assert.match(await red.innerText(), /probe/);
    assert.equal(loads(), 0, "the page was not loaded anew");

    await Promise.all(upstreams.map((model) => behave(model, "ok")));
    await tab.page.getByRole("button", { name: "Reset all breakers" }).first().click();
    await tab.page.getByRole("dialog").getByRole("button", { name: "Reset all breakers" }).click();
    await red.waitFor({ state: "detached", ...SOON });
  });

  test("edits a threshold and shows it on the card", async () => {
    const pools = new PoolsPage(tab);
    await pools.goto(`?pool=${POOL}&part=settings`);
    const field = pools.setting("Failures in a row");
    const before = Number(await field.inputValue());
    await field.fill(String(before + 2));
    await pools.saveSettings();
    await tab.page.locator(".toast").getByText("settings saved").waitFor(SOON);
    await pools.card(POOL).locator(".figures").getByText(String(before + 2), { exact: true }).waitFor(SOON);
    await tab.page.reload();
    await tab.hydrated();
    assert.equal(await pools.setting("Failures in a row").inputValue(), String(before + 2));
    await tab.page.getByRole("button", { name: "Standard" }).click();
    assert.equal(await pools.setting("Failures in a row").inputValue(), "5");
    await pools.saveSettings();
    await tab.page.locator(".toast").getByText("settings saved").last().waitFor(SOON);
  });

  test("changes a weight, and shows the share before saving", async () => {
    const pools = new PoolsPage(tab);
    await pools.goto(`?pool=${POOL}`);
    const model = (await pools.members())[0];
    const weight = pools.member(model).getByLabel("Weight");
    const before = await weight.inputValue();
    const share = await pools.member(model).locator("td").nth(5).innerText();
    await weight.fill(String(Number(before) + 50));
    assert.notEqual(await pools.member(model).locator("td").nth(5).innerText(), share);
    await pools.member(model).getByRole("button", { name: "Save" }).click();
    await tab.page.locator(".toast").getByText(`${model}: saved`).waitFor(SOON);
    await weight.fill(before);
    await pools.member(model).getByRole("button", { name: "Save" }).click();
    await tab.page.locator(".toast").getByText(`${model}: saved`).last().waitFor(SOON);
  });

  test("adds an account, binds and unbinds it", async () => {
    const accounts = new AccountsPage(tab);
    const label = `night-${Date.now()}`;
    await accounts.goto();
    await accounts.add({ label, provider: "sim", key: "sk-canary-0123456789" });
    await accounts.row(label).waitFor(SOON);
    assert.match(await accounts.row(label).innerText(), /····6789/);
    await accounts.turn(label);
    const model = (await accounts.bindable())[0];
    await accounts.bind(model, 7);
    await accounts.binding(model).waitFor(SOON);
    assert.match(await accounts.binding(model).innerText(), /7/);
    await accounts.unbind(model);
    await accounts.binding(model).waitFor({ state: "detached", ...SOON });
    assert.ok(!(await tab.page.content()).includes("canary"), "the key is nowhere on the page");
  });

  test("follows new tasks and opens the attempt chain of one", async () => {
    const tasks = new TasksPage(tab);
    await tasks.goto();
    const { task } = await complete(POOL, "a new one");
    await tasks.row(task).waitFor(SOON);
    await tasks.open(task);
    await tasks.attempts.first().waitFor(SOON);
    assert.match(await tasks.attempts.first().innerText(), /Initial/);
    await tab.page.goBack();
    await tasks.row(task).waitFor(SOON);
  });

  test("finds tasks by the error class of any attempt, with the filter in the URL", async () => {
    const tasks = new TasksPage(tab);
    await tasks.goto();
    await tasks.filter("error_class", "upstream");
    await tab.page.waitForURL(/error_class=upstream$/);
    await tasks.rows().first().waitFor(SOON);
    for (const row of await tasks.rows().all()) assert.match(await row.innerText(), /upstream/);
  });

  test("speaks Chinese when asked to", async () => {
    await tab.goto("/admin/model-pools");
    await tab.page.getByRole("button", { name: "简体中文" }).click();
    await tab.page.getByRole("heading", { name: "模型池" }).waitFor(SOON);
    await tab.hydrated();
    await tab.page.getByRole("button", { name: "English" }).click();
    await tab.page.getByRole("heading", { name: "Model pools" }).waitFor(SOON);
    await tab.hydrated();
  });

  test("works without JavaScript", async () => {
    const bare = await Tab.open(browser, {
      javaScriptEnabled: false,
      storageState: await tab.page.context().storageState(),
    });
    await bare.page.goto(`/admin/model-pools?pool=${POOL}&part=settings`);
    await bare.page.getByLabel("Recovery, s", { exact: true }).fill("61");
    await bare.page.locator(".settings").getByRole("button", { name: "Save" }).click();
    assert.equal(await bare.page.getByLabel("Recovery, s", { exact: true }).inputValue(), "61");
    await bare.page.getByLabel("Recovery, s", { exact: true }).fill("60");
    await bare.page.locator(".settings").getByRole("button", { name: "Save" }).click();
    bare.assertQuiet();
    await bare.close();
  });

  test("says how old its data is while the server is out of reach, and recovers alone", async () => {
    await tab.goto("/admin/model-pools");
    await tab.page.route("**/admin/fn/**", (route) => route.abort());
    const banner = tab.page.locator(".banner");
    await banner.waitFor(SOON);
    assert.match(await banner.innerText(), /No connection.*\d+ s old/);
    await tab.page.unroute("**/admin/fn/**");
    await banner.waitFor({ state: "detached", ...SOON });
    tab.complaints.length = 0; // The browser itself reports the requests that were cut.
  });

  test("an address that leads nowhere is a 404 with a way back", async () => {
    const response = await tab.page.goto("/admin/no-such-page");
    assert.equal(response.status(), 404);
    await tab.page.getByRole("heading", { name: "No such page" }).waitFor();
    await tab.hydrated();
    tab.complaints.length = 0; // The 404 itself.
  });

  test("can be looked at, light and dark", { skip: !screenshots }, async () => {
    await mkdir(screenshots, { recursive: true });
    const { task } = await complete(POOL);
    const pages = {
      "model-pools": "/admin/model-pools",
      "model-pools-open": `/admin/model-pools?pool=${POOL}`,
      "model-pools-settings": `/admin/model-pools?pool=${POOL}&part=settings`,
      "api-accounts": "/admin/api-accounts",
      tasks: "/admin/tasks",
      task: `/admin/tasks/${task}`,
    };
    for (const colorScheme of ["light", "dark"]) {
      await tab.page.emulateMedia({ colorScheme });
      for (const [name, path] of Object.entries(pages)) {
        await tab.goto(path);
        await tab.page.screenshot({ path: join(screenshots, `${name}-${colorScheme}.png`), fullPage: true });
      }
    }
  });

  test("signs out", async () => {
    await tab.goto("/admin/model-pools");
    await tab.page.getByRole("button", { name: "Sign out", exact: true }).click();
    await tab.page.waitForURL(/\/admin\/login/);
    await tab.hydrated();
    await tab.goto("/admin/tasks");
    assert.match(tab.page.url(), /\/admin\/login/);
  });
});

/** What the simulator calls the members shown: it stands behind the provider. */
async function upstreamNames(page) {
  const texts = await page.locator("tr[data-model] th .muted").allInnerTexts();
  return texts.map((text) => text.split(" · ").at(-1).trim());
}

/** Counts full loads of the page from now on. */
function countLoads(page) {
  let loads = 0;
  page.on("load", () => (loads += 1));
  return () => loads;
}

/** Sends requests until `done`, for half a minute at most. */
async function keepSending(pool, done) {
  const end = Date.now() + 30_000;
  while (!(await done())) {
    if (Date.now() > end) throw new Error("nothing happened within 30 s");
    await complete(pool);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
