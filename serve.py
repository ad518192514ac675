"""What `streamlit run` serves: the dashboard, to its own pages only."""

import streamlit as st
from starlette.middleware import Middleware

from ui.shared.own_pages import OwnPagesOnly

app = st.App("app.py", middleware=[Middleware(OwnPagesOnly)])
