/** `/admin/login`. */
export class LoginPage {
  constructor(tab) {
    this.tab = tab;
    this.page = tab.page;
    this.problem = this.page.getByRole("alert");
  }

  async signIn({ name, password }) {
    await this.page.getByLabel("Name", { exact: true }).fill(name);
    await this.page.getByLabel("Password", { exact: true }).fill(password);
    await this.page.getByRole("button", { name: "Sign in" }).click();
    await this.tab.hydrated();
  }
}
