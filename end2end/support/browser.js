// A browser that fails the test on anything a page complains about.

import assert from "node:assert/strict";
import { chromium } from "playwright-core";

import { baseUrl } from "./environment.js";

const ARGUMENTS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-first-run",
  "--disable-quic",
];

/** Starts Chromium. Close it when done. */
export function launch() {
  return chromium.launch({
    executablePath: process.env.FOREBAY_CHROMIUM ?? "/usr/bin/chromium",
    args: ARGUMENTS,
  });
}

/** A page with a session of its own, and the list of what it complained about. */
export class Tab {
  constructor(page) {
    this.page = page;
    this.complaints = [];
    page.on("console", (message) => {
      if (["error", "warning", "assert"].includes(message.type())) {
        this.complaints.push(`${message.type()}: ${message.text()} (${message.location().url})`);
      }
    });
    page.on("pageerror", (error) => this.complaints.push(`uncaught: ${error.message}`));
    page.on("response", (response) => {
      if (response.status() >= 400) this.complaints.push(`${response.status()} from ${response.url()}`);
    });
  }

  static async open(browser, options = {}) {
    const context = await browser.newContext({
      baseURL: baseUrl,
      viewport: { width: 1440, height: 900 },
      locale: "en-GB",
      ...options,
    });
    return new Tab(await context.newPage());
  }

  /** Goes to a page and waits until its bundle has taken over. */
  async goto(path) {
    await this.page.goto(path);
    await this.hydrated();
  }

  /** Waits until the bundle has taken over: from then on a click is the bundle's. */
  async hydrated() {
    await this.page.locator("body[data-hydrated]").waitFor({ state: "attached" });
  }

  /** Fails on anything the page has complained about since the last call. */
  assertQuiet() {
    const complaints = this.complaints.splice(0);
    assert.deepEqual(complaints, []);
  }

  async close() {
    await this.page.context().close();
  }
}
