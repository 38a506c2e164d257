/** `/admin/model-pools`. */
export class PoolsPage {
  constructor(tab) {
    this.tab = tab;
    this.page = tab.page;
    this.toast = this.page.getByRole("status").last();
  }

  async goto(query = "") {
    await this.tab.goto(`/admin/model-pools${query}`);
  }

  card(key) {
    return this.page.locator(`article[id="${key}"]`);
  }

  /** A click on the card's name opens it; on an open one it closes it. */
  async turn(key) {
    await this.card(key).locator(".card-link").click();
  }

  async part(name) {
    await this.page.locator(".tabs").getByRole("link", { name }).click();
  }

  member(model) {
    return this.page.locator(`tr[data-model="${model}"]`);
  }

  badge(model, state) {
    return this.member(model).locator(`.badge[data-state="${state}"]`);
  }

  /** The names of the members shown. */
  members() {
    return this.page.locator("tr[data-model]").evaluateAll((rows) => rows.map((row) => row.dataset.model));
  }

  /** Presses a button of a member that asks first, and says yes. */
  async confirm(model, button) {
    await this.member(model).getByRole("button", { name: button }).first().click();
    await this.page.getByRole("dialog").getByRole("button", { name: button }).click();
  }

  setting(label) {
    return this.page.getByLabel(label, { exact: true });
  }

  async saveSettings() {
    await this.page.locator(".settings").getByRole("button", { name: "Save" }).click();
  }
}
