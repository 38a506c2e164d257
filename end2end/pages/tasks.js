/** `/admin/tasks` and one task. */
export class TasksPage {
  constructor(tab) {
    this.tab = tab;
    this.page = tab.page;
    this.attempts = this.page.locator(".attempt");
  }

  async goto(query = "") {
    await this.tab.goto(`/admin/tasks${query}`);
  }

  row(task) {
    return this.page.locator(`tr[data-task="${task}"]`);
  }

  rows() {
    return this.page.locator("tr[data-task]");
  }

  async open(task) {
    await this.row(task).getByRole("link").click();
    await this.page.waitForURL(`**/admin/tasks/${task}`);
  }

  async filter(name, value) {
    await this.page.locator(`.filters [name="${name}"]`).selectOption(value);
    await this.page.getByRole("button", { name: "Filter" }).click();
  }
}
