/** `/admin/api-accounts`. */
export class AccountsPage {
  constructor(tab) {
    this.tab = tab;
    this.page = tab.page;
  }

  async goto(query = "") {
    await this.tab.goto(`/admin/api-accounts${query}`);
  }

  row(label) {
    return this.page.locator(`tr[data-account="${label}"]`);
  }

  labels() {
    return this.page.locator("tr[data-account]").evaluateAll((rows) => rows.map((row) => row.dataset.account));
  }

  async turn(label) {
    await this.row(label).locator(".card-link").click();
  }

  binding(model) {
    return this.page.locator(`tr[data-binding="${model}"]`);
  }

  async bind(model, priority) {
    const form = this.page.locator(".bind-form");
    await form.locator("select").selectOption(model);
    await form.locator("input[name=priority]").fill(String(priority));
    await form.getByRole("button", { name: "Bind" }).click();
  }

  async unbind(model) {
    await this.binding(model).getByRole("button", { name: "Unbind" }).first().click();
    await this.page.getByRole("dialog").getByRole("button", { name: "Unbind" }).click();
  }

  /** Models that the form offers. */
  async bindable() {
    return this.page.locator(".bind-form select option").allInnerTexts();
  }

  async add({ label, provider, key }) {
    await this.page.getByRole("link", { name: "Add account" }).click();
    const form = this.page.locator(".panel-new");
    await form.getByLabel("Label", { exact: true }).fill(label);
    await form.getByLabel("Provider", { exact: true }).selectOption(provider);
    await form.getByLabel("Key", { exact: true }).fill(key);
    await form.getByRole("button", { name: "Add account" }).click();
  }
}
